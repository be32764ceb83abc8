//! Waits for locks, channels, conditions and threads, and the profiles of them.

mod channels;
mod channels_stacks;
mod channels_stress;
mod conditions;
mod events;
mod kinds;
mod locks_stress;
mod locks_stress_rw;
mod on_its_way;
mod threads;
mod truth;
mod truth_rw;
