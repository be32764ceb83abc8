//! The chart of the budgets: one band for each, with the share that is used up on a logarithmic axis.

use std::io;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use rtprof_benches::statistics::max;
use rtprof_benches::written::Verdict;

use crate::report::Band;

/// The axis, in shares of a budget. Smaller and larger values stand at its ends.
const AXIS: std::ops::Range<f64> = 0.01..1000.0;

/// The width of everything, and of the names at the left, in pixels.
const WIDTH: u32 = 1200;
const NAMES: u32 = 390;
/// The height of a band, and what is left free above and below them all.
const BAND: u32 = 30;
const ABOVE: u32 = 60;
const BELOW: u32 = 50;

const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const GREY: RGBColor = RGBColor(0x6e, 0x77, 0x81);
const WITHIN: RGBColor = RGBColor(0x1a, 0x7f, 0x37);
const BEYOND: RGBColor = RGBColor(0xcf, 0x22, 0x2e);
const BETWEEN: RGBColor = RGBColor(0xbf, 0x87, 0x00);

type Plane = Cartesian2d<LogCoord<f64>, RangedCoordf64>;

/// Returns the chart as SVG.
pub(crate) fn draw(bands: &[Band<'_>]) -> io::Result<String> {
    let mut svg = String::new();
    let size = (WIDTH, ABOVE + BAND * bands.len() as u32 + BELOW);
    plot(SVGBackend::with_string(&mut svg, size), bands).map_err(io::Error::other)?;
    Ok(svg)
}

fn plot<'a>(
    backend: SVGBackend<'a>,
    bands: &[Band<'_>],
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: i32, colour: &RGBColor, across: HPos| {
        ("sans-serif", size).into_font().color(colour).pos(Pos::new(across, VPos::Center))
    };
    root.draw(&Text::new(
        "How much of each budget is used up, left of the line: filled dots are rtprof, hollow ones are others (* from another run)",
        (20, 24),
        text(17, &INK, HPos::Left),
    ))?;
    let plane: DrawingArea<_, Plane> =
        root.margin(ABOVE as i32, BELOW as i32, NAMES as i32, 50).apply_coord_spec(Cartesian2d::new(
            AXIS.log_scale(),
            0.0..bands.len() as f64,
            (NAMES as i32..(WIDTH - 50) as i32, ABOVE as i32..(ABOVE + BAND * bands.len() as u32) as i32),
        ));
    let height = bands.len() as f64;
    for (share, name) in [
        (0.01, "1 %"),
        (0.1, "10 %"),
        (1.0, "the budget"),
        (10.0, "10 ×"),
        (100.0, "100 ×"),
        (1000.0, "1000 ×"),
    ] {
        let line = if share == 1.0 { INK.stroke_width(2) } else { GREY.mix(0.3).stroke_width(1) };
        plane.draw(&PathElement::new(vec![(share, 0.0), (share, height)], line))?;
        plane.draw(
            &(EmptyElement::at((share, height)) + Text::new(name, (0, 16), text(13, &INK, HPos::Center))),
        )?;
    }
    for (place, band) in bands.iter().enumerate() {
        let middle = place as f64 + 0.5;
        let budget = band.budget;
        let name = format!("{}, {}", budget.what, budget.limit.show_amount());
        plane.draw(
            &(EmptyElement::at((AXIS.start, middle))
                + Text::new(name, (-14, 0), text(13, &INK, HPos::Right))),
        )?;
        for (number, other) in band.others.iter().enumerate() {
            let shares: Vec<f64> = other.values.iter().map(|value| budget.limit.share(*value)).collect();
            for share in &shares {
                let at = (on_axis(*share), middle);
                plane.draw(&Circle::new(at, 4, GREY.stroke_width(1)))?;
            }
            // Names of neighbours stand above and below in turns.
            let aside = if number % 2 == 0 { 10 } else { -10 };
            let name = format!("{}{}", other.name, if other.is_now { "" } else { "*" });
            let at = (on_axis(max(&shares)), middle);
            plane
                .draw(&(EmptyElement::at(at) + Text::new(name, (0, aside), text(11, &GREY, HPos::Center))))?;
        }
        for (_, value) in &band.ours {
            let colour = match budget.limit.verdict(*value) {
                Verdict::Met => WITHIN,
                Verdict::NotMet => BEYOND,
                Verdict::Unclear => BETWEEN,
            };
            plane.draw(&Circle::new(
                (on_axis(budget.limit.share(*value)), middle),
                5,
                colour.mix(0.75).filled(),
            ))?;
        }
    }
    root.present()
}

fn on_axis(share: f64) -> f64 {
    share.clamp(AXIS.start, AXIS.end)
}
