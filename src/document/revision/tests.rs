//! Revisions recorded from CouchDB 3.5, and the forms that their texts may take.

use super::*;
use crate::json::{self, Value};

fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

fn rev(text: &str) -> Revision {
    Revision::parse(text).expect("a revision")
}

fn first(text: &str) -> String {
    compute(false, None, &encode_body(&object(text)), &[]).to_string()
}

#[test]
fn first_revisions_as_recorded() {
    let table = [
        ("{}", "1-967a00dff5e02add41819138abb3284d"),
        (r#"{"v":1,"w":[1,2.5,"x",null,true,{"k":"é"}]}"#, "1-179f870465b54b709955fdf4a4c8070d"),
        (r#"{}"#, "1-967a00dff5e02add41819138abb3284d"),
        (r#"{"v":1}"#, "1-7a7e4b29f3af401e69b6f86e4c26b727"),
        (r#"{"x":1,"y":2}"#, "1-cd90201763f897aa0178b7ff05eb80cb"),
        (r#"{"y":2,"x":1}"#, "1-fa2e8f0d2a833a1d388141f6be1462a0"),
        (r#"{"x":1.0,"y":2}"#, "1-8a3df7178798e3e10ab8276f42401702"),
        (r#" { "x" : 1 , "y" : 2 } "#, "1-cd90201763f897aa0178b7ff05eb80cb"),
        (r#"{"x":"\u0041","y":2}"#, "1-ef0c734d666b8e454d1294cdb86f096e"),
        (r#"{"x":"A","y":2}"#, "1-ef0c734d666b8e454d1294cdb86f096e"),
        (
            r#"{"i":9007199254740993,"big":123456789012345678901234567890,"neg":-5,"z":0,"nz":-0}"#,
            "1-4f8c676f3f41f359f48c12509693b171",
        ),
        (
            r#"{"a":1.0,"b":0.1,"c":1e3,"d":1E-7,"e":1.5e300,"f":123456789.125,"g":-0.0,"h":100000000000000000000.0,"i":1e21,"j":0.30000000000000004,"k":2.50}"#,
            "1-414d293541b943bce1127369e43aeb41",
        ),
        (
            r#"{"s":"\ud83d\ude00 \u0000 \u001f \/ \" \\ \b\f\n\r\t \u2028 \uffff é"}"#,
            "1-0e3340f6356e86484f5b5164cce49cdc",
        ),
        (r#"{"\u00e9\ud83d\ude00":1}"#, "1-2d37ba94b5ae2d9e7fd8e07de054c789"),
        (r#"{"x":1,"x":2,"y":3}"#, "1-4b675eb4e36d45af824d8f146c8620db"),
        (r#"{"o":{"k":1,"k":2}}"#, "1-180664e3fb22abeff3246ab62dda8691"),
        (r#"{"x":2,"y":3}"#, "1-4b675eb4e36d45af824d8f146c8620db"),
        (r#"{"x":1,"y":3,"x":2}"#, "1-9d3f153566951966dc7e781137c3a083"),
        (r#"{"y":3,"x":2}"#, "1-9d3f153566951966dc7e781137c3a083"),
        (
            r#"{"a":null,"b":true,"c":false,"d":"","e":"text","f":[],"g":{},"h":[1,[2,[3]]],"i":{"j":{"k":"l"}}}"#,
            "1-6485f816bedcc22785faf19e7b2686a6",
        ),
        (
            r#"{"n":[0,1,255,256,-1,-2147483648,2147483647,2147483648,-2147483649,4294967296,9223372036854775807,9223372036854775808,-9223372036854775808,123456789012345678901234567890]}"#,
            "1-4d7db0470ef309bcc1cd1f18a19754b5",
        ),
        (
            r#"{"n":[0.0,0.5,-1.5,1e10,1e-10,3.141592653589793,1.7976931348623157e308,2.2250738585072014e-308]}"#,
            "1-b476d9417db2d1bb72162bf24fd7e1b6",
        ),
        (
            r#"{"s":"café 日本 😀","long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#,
            "1-ae2616c24dc36a5551d8f5ffb38c259c",
        ),
        (r#"{"bytes":[1,2,3],"text":"abc","mixed":[1,"a"]}"#, "1-bd069b1f581268678e3905b0f65e053b"),
    ];
    for (text, expected) in table {
        assert_eq!(first(text), expected, "{text}");
    }
}

#[test]
fn long_values_as_recorded() {
    let many: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(first(&format!("{{\"many\":[{}]}}", many.join(","))), "1-8371a5c3a69e649f2897b8b9696c3063");
    let arrays = format!("{{\"n\":{}{}}}", "[".repeat(80), "]".repeat(80));
    assert_eq!(first(&arrays), "1-6c912b66e5991919469c12255c5ae8ba");
}

#[test]
fn later_revisions_and_tombstones_as_recorded() {
    let empty = encode_body(&Object::new());
    let born_dead = compute(true, None, &empty, &[]);
    assert_eq!(born_dead.to_string(), "1-de715bf126efc93d225d9e3f8e8eb81a");
    let dead = compute(true, Some(&rev("1-967a00dff5e02add41819138abb3284d")), &empty, &[]);
    assert_eq!(dead.to_string(), "2-eec205a9d413992850a6e32678485900");
    let second =
        compute(false, Some(&rev("1-7a7e4b29f3af401e69b6f86e4c26b727")), &encode_body(&object("{\"v\":2}")), &[]);
    assert_eq!(second.to_string(), "2-d0df861eb528e79690cd2ff3c4d394f3");
    let other =
        compute(false, Some(&rev("1-179f870465b54b709955fdf4a4c8070d")), &encode_body(&object("{\"v\":2}")), &[]);
    assert_eq!(other.to_string(), "2-ec72a857a8701c34f8dc4d69eec375a9");
}

#[test]
fn attachments_as_recorded() {
    let plain = "application/octet-stream";
    let table = [
        ("f", plain, &b"hello"[..], "1-1118a185107f48a409c2abcc3dbc5e8b"),
        ("f", "image/png", b"hello", "1-9ed8abec5349d6abcce611dd3d1d9ad8"),
        ("g", plain, b"hello", "1-c1e8ab1240ceb0168cbb61fea640ebdc"),
        ("f", plain, b"hello!", "1-e8e8ab0a2a131e4f5907ec18a5276aac"),
    ];
    for (name, content_type, data, expected) in table {
        let md5: [u8; 16] = Md5::digest(data).into();
        let attachment = AttachmentDigest { name, content_type, md5: &md5 };
        let found = compute(false, None, &encode_body(&Object::new()), &[attachment]);
        assert_eq!(found.to_string(), expected, "{name} {content_type}");
    }
}

#[test]
fn the_order_of_attachments_and_the_text_of_a_parent_count() {
    let digests = [[1; 16], [2; 16]];
    let att = |name: &'static str, n: usize| AttachmentDigest { name, content_type: "a/b", md5: &digests[n] };
    let body = encode_body(&Object::new());
    let one = compute(false, None, &body, &[att("a", 0), att("b", 1)]);
    let two = compute(false, None, &body, &[att("b", 1), att("a", 0)]);
    assert_ne!(one, two);
    let text = compute(false, Some(&rev("3-abc")), &body, &[]);
    assert_eq!(text.pos, 4);
    assert_ne!(text, compute(false, Some(&rev("3-abd")), &body, &[]));
}

#[test]
fn terms_of_numbers_and_lists() {
    let term = |text: &str| {
        let mut out = Vec::new();
        put_value(&json::parse(text.as_bytes()).expect("JSON"), &mut out);
        out
    };
    assert_eq!(term("255"), [97, 255]);
    assert_eq!(term("256"), [98, 0, 0, 1, 0]);
    assert_eq!(term("-1"), [98, 255, 255, 255, 255]);
    assert_eq!(term("2147483648"), [110, 4, 0, 0, 0, 0, 128]);
    assert_eq!(term("-2147483649"), [110, 4, 1, 1, 0, 0, 128]);
    assert_eq!(term("18446744073709551616"), [110, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(term("-0.0"), [70, 128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(term("[]"), [106]);
    assert_eq!(term("[1,2]"), [107, 0, 2, 1, 2]);
    assert_eq!(term("[256]"), [108, 0, 0, 0, 1, 98, 0, 0, 1, 0, 106]);
    assert_eq!(term("{}"), [104, 1, 106]);
    let long = |count: usize| term(&format!("[{}1]", "1,".repeat(count - 1)));
    assert_eq!(long(65535)[..3], [107, 255, 255]);
    assert_eq!(long(65536)[..5], [108, 0, 1, 0, 0]);
}

#[test]
fn texts_of_revisions() {
    for good in ["1-abc", "0-1", "12-967a00dff5e02add41819138abb3284d", "1-a-b", "1-", "007-x"] {
        let revision = rev(good);
        assert_eq!(rev(&revision.to_string()), revision, "{good}");
    }
    assert_eq!(rev("1-967A00DFF5E02ADD41819138ABB3284D").to_string(), "1-967a00dff5e02add41819138abb3284d");
    let bad = ["", "1", "-", "-1", "-1-a", "+1-a", "x-a", "1.0-a", " 1-a", "1-967a00dff5e02add41819138abb3284g"];
    for text in bad.into_iter().chain(["99999999999999999999-a"]) {
        assert_eq!(Revision::parse(text), Err(BadRevision), "{text}");
    }
}

#[test]
fn order_is_generation_then_bytes() {
    let mut revs = ["10-a", "2-b", "2-a", "2-aa", "2-ff000000000000000000000000000000"].map(rev);
    revs.sort();
    let texts = revs.map(|r| r.to_string());
    assert_eq!(texts, ["2-a", "2-aa", "2-b", "2-ff000000000000000000000000000000", "10-a"]);
}
