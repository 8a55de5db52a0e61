//! Every rare turn and every point in the node's code is on the lists that reports are made from. In a simulated world
//! one that is not ends the run; here it shows in every test run.

use std::path::Path;

use settee::world::buggify::{POINTS, SITES};

/// The texts given to calls of `function` in the files below `dir`.
fn named(dir: &Path, function: &str, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            named(&path, function, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            let mark = format!("{function}(\"");
            let calls = text.split(&mark).skip(1);
            out.extend(calls.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}

#[test]
fn every_site_and_point_of_the_code_is_listed() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let (mut sites, mut points) = (Vec::new(), Vec::new());
    ["buggify", "fewer"].iter().for_each(|function| named(&src, function, &mut sites));
    named(&src, "sometimes", &mut points);
    assert!(sites.len() >= SITES.len() && points.len() >= POINTS.len(), "found by their calls");
    assert_eq!(sites.iter().find(|site| !SITES.contains(&site.as_str())), None);
    assert_eq!(points.iter().find(|point| !POINTS.contains(&point.as_str())), None);
}
