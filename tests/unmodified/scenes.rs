//! Calls that wait for an external event, and the events that end them: of files, sockets and processes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use rtprof::BlockKinds;
use rtprof_trace_check::EventType;

/// Returns a pair of connected sockets.
pub(crate) fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let client = TcpStream::connect(listener.local_addr().unwrap()).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

pub(crate) fn read_byte(mut from: impl Read) {
    from.read_exact(&mut [0]).expect("there will be a byte");
}

pub(crate) fn write_byte(mut to: impl Write) {
    to.write_all(b"x").expect("somebody reads");
}

/// A function that receives the waiting call, and the call that ends it.
pub(crate) type Play<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send), &mut dyn FnMut());

/// A scene: makes the objects that it needs and plays it.
pub(crate) type Scene = fn(Play<'_>);

fn once<T>(call: impl FnOnce() -> T) -> impl FnMut() -> T {
    let mut call = Some(call);
    move || call.take().expect("it is called once")()
}

pub(crate) fn pipe(play: Play<'_>) {
    let (reads, writes) = std::io::pipe().expect("there are descriptors");
    play(&mut once(|| read_byte(reads)), &mut || write_byte(&writes));
}

fn full_pipe(play: Play<'_>) {
    let (mut reads, mut writes) = std::io::pipe().expect("there are descriptors");
    // SAFETY: a plain system call.
    let size = unsafe { libc::fcntl(writes.as_raw_fd(), libc::F_GETPIPE_SZ) };
    let mut bytes = vec![0; size as usize];
    writes.write_all(&bytes).expect("it has room for these");
    play(&mut once(move || write_byte(&writes)), &mut || {
        reads.read_exact(&mut bytes).expect("they are there")
    });
}

fn process(play: Play<'_>) {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("every system has it");
    let input = child.stdin.take();
    let wait = once(|| assert!(child.wait().expect("it is ours").success()));
    play(&mut { wait }, &mut once(|| drop(input)));
}

pub(crate) fn stream(play: Play<'_>) {
    let (client, server) = connected();
    play(&mut once(|| read_byte(&client)), &mut || write_byte(&server));
}

fn local_stream(play: Play<'_>) {
    let (client, server) = UnixStream::pair().expect("there are descriptors");
    play(&mut once(|| read_byte(&client)), &mut || write_byte(&server));
}

fn datagram(play: Play<'_>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
    let address = socket.local_addr().unwrap();
    let wait = || assert_eq!(socket.recv_from(&mut [0; 8]).expect("there will be one").0, 1);
    play(&mut { wait }, &mut || assert_eq!(socket.send_to(b"x", address).expect("it is there"), 1));
}

fn acceptance(play: Play<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().unwrap();
    let wait = || drop(listener.accept().expect("there will be one"));
    play(&mut { wait }, &mut || drop(TcpStream::connect(address).expect("it listens")));
}

fn poll(play: Play<'_>) {
    let (client, server) = UnixStream::pair().expect("there are descriptors");
    let wait = || {
        let mut poll = libc::pollfd { fd: client.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, -1) }, 1);
    };
    play(&mut { wait }, &mut || write_byte(&server));
}

fn select(play: Play<'_>) {
    let (client, server) = UnixStream::pair().expect("there are descriptors");
    let wait = || {
        let number = client.as_raw_fd();
        // SAFETY: an all-zero set is empty; the pointer is to a local.
        let found = unsafe {
            let mut set = std::mem::zeroed();
            libc::FD_SET(number, &raw mut set);
            libc::select(number + 1, &raw mut set, null_mut(), null_mut(), null_mut())
        };
        assert_eq!(found, 1);
    };
    play(&mut { wait }, &mut || write_byte(&server));
}

fn event_set(play: Play<'_>) {
    let (client, server) = UnixStream::pair().expect("there are descriptors");
    // SAFETY: plain system calls; the pointer is to a local.
    let set = unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        assert_eq!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, client.as_raw_fd(), &raw mut event), 0);
        set
    };
    let wait = || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the pointer is to a local, with room for one event.
        assert_eq!(unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) }, 1);
    };
    play(&mut { wait }, &mut || write_byte(&server));
}

pub(crate) const SCENES: [(Scene, EventType, BlockKinds); 10] = [
    (pipe, EventType::GoSysCall, BlockKinds::SYSCALL),
    (full_pipe, EventType::GoSysCall, BlockKinds::SYSCALL),
    (process, EventType::GoSysCall, BlockKinds::SYSCALL),
    (stream, EventType::GoBlockNet, BlockKinds::NETWORK),
    (local_stream, EventType::GoBlockNet, BlockKinds::NETWORK),
    (datagram, EventType::GoBlockNet, BlockKinds::NETWORK),
    (acceptance, EventType::GoBlockNet, BlockKinds::NETWORK),
    (poll, EventType::GoBlockNet, BlockKinds::NETWORK),
    (select, EventType::GoBlockNet, BlockKinds::NETWORK),
    (event_set, EventType::GoBlockNet, BlockKinds::NETWORK),
];
