//! Every rule of reserved members with the message that the reference answers.

use super::*;

fn draft(text: &str) -> Result<Draft, DraftError> {
    parse(json::parse(text.as_bytes()).expect("JSON"))
}

fn fault(text: &str) -> (&'static str, String) {
    let error = draft(text).expect_err(text);
    (error.name(), error.reason)
}

#[test]
fn ordinary_members_and_kept_ones() {
    let text = r#"{"_id":"a","b":1,"_rev":"1-x","_conflicts":1,"_deleted_conflicts":[],"_revs_info":{},"_local_seq":9,
        "_deleted":false,"_replication_id":"r","_replication_state":"s","_replication_state_time":1,
        "_replication_stats":{},"n":{"_nested":1}}"#;
    let read = draft(text).expect("accepted");
    assert_eq!(read.id.as_deref(), Some("a"));
    assert_eq!(read.rev, Revision::parse("1-x").ok());
    assert!(!read.deleted && read.revisions.is_none() && read.attachments.is_empty());
    let body = r#"{"b":1,"_replication_id":"r","_replication_state":"s","_replication_state_time":1,"#.to_owned()
        + r#""_replication_stats":{},"n":{"_nested":1}}"#;
    assert_eq!(String::from_utf8(read.body.to_vec()), Ok(body));
    assert!(draft(r#"{"_deleted":true}"#).is_ok_and(|d| d.deleted && d.body.is_empty()));
}

#[test]
fn faults_of_reserved_members() {
    let table = [
        ("[]", "bad_request", "Document must be a JSON object"),
        ("7", "bad_request", "Document must be a JSON object"),
        (r#"{"_foo":1}"#, "doc_validation", "Bad special document member: _foo"),
        (r#"{"_":1}"#, "doc_validation", "Bad special document member: _"),
        (r#"{"_deleted":"yes"}"#, "doc_validation", "Bad special document member: _deleted"),
        (r#"{"_attachments":[]}"#, "doc_validation", "Bad special document member: _attachments"),
        (r#"{"_revisions":[]}"#, "doc_validation", "Bad special document member: _revisions"),
        (r#"{"_revisions":{}}"#, "doc_validation", "_revisions.start isn't an integer."),
        (r#"{"_revisions":{"start":1.0,"ids":[]}}"#, "doc_validation", "_revisions.start isn't an integer."),
        (r#"{"_revisions":{"start":1,"ids":"a"}}"#, "doc_validation", "_revisions.ids isn't a array."),
        (r#"{"_revisions":{"start":1}}"#, "doc_validation", "_revisions.ids isn't a array."),
        (r#"{"_revisions":{"start":1,"ids":[1]}}"#, "doc_validation", "RevId isn't a string"),
        (
            r#"{"_revisions":{"start":1,"ids":["967a00dff5e02add41819138abb3284g"]}}"#,
            "doc_validation",
            "RevId isn't a valid hexadecimal",
        ),
        (r#"{"_rev":1}"#, "bad_request", "Invalid rev format"),
        (r#"{"_rev":"x"}"#, "bad_request", "Invalid rev format"),
        (r#"{"_id":7}"#, "illegal_docid", "Document id must be a string"),
        (r#"{"_id":""}"#, "illegal_docid", "Document id must not be empty"),
        (r#"{"_id":"_bad"}"#, "illegal_docid", "Only reserved document ids may start with underscore."),
        (r#"{"_id":"_bad","_foo":1}"#, "illegal_docid", "Only reserved document ids may start with underscore."),
        (r#"{"_attachments":{"f":{"data":"***"}}}"#, "bad_request", "Invalid attachment data for f"),
        (r#"{"_attachments":{"f":{"data":"MQ"}}}"#, "bad_request", "Invalid attachment data for f"),
        (r#"{"_attachments":{"f":{"data":7}}}"#, "bad_request", "Invalid attachment data for f"),
        (r#"{"_attachments":{"f":{}}}"#, "bad_request", "Invalid attachment data for f"),
        (r#"{"_attachments":{"f":{"stub":false}}}"#, "bad_request", "Invalid attachment data for f"),
        (
            r#"{"_attachments":{"_f":{"data":"MQ=="}}}"#,
            "bad_request",
            "Attachment name '_f' starts with prohibited character '_'",
        ),
    ];
    for (text, name, reason) in table {
        assert_eq!(fault(text), (name, reason.to_owned()), "{text}");
    }
    for ids in [r#"{"start":1,"ids":["a","b","c"]}"#, r#"{"start":-1,"ids":["a"]}"#] {
        assert_eq!(fault(&format!("{{\"_revisions\":{ids}}}")).0, "doc_validation", "{ids}");
    }
}

#[test]
fn a_history_names_the_revision() {
    for text in [
        r#"{"_rev":"9-z","_revisions":{"start":3,"ids":["c","b"]}}"#,
        r#"{"_revisions":{"start":3,"ids":["c","b"]},"_rev":"9-z"}"#,
    ] {
        let read = draft(text).expect("accepted");
        assert_eq!(read.rev, Revision::parse("3-c").ok());
        assert_eq!(read.revisions.map(|p| (p.start, p.ids.len())), Some((3, 2)));
    }
    let none = draft(r#"{"_revisions":{"start":0,"ids":[]}}"#).expect("accepted");
    assert_eq!((none.rev, none.revisions), (None, None));
}

#[test]
fn attachment_entries() {
    let text = r#"{"_attachments":{
        "s":{"stub":true,"revpos":3,"digest":"md5-x","length":"odd","content_type":"a/b"},
        "i":{"data":" aGVs\nbG8= ","content_type":"text/plain"},
        "e":{"data":""},
        "f":{"follows":true,"length":5},
        "g":{"follows":true,"length":5,"encoding":"gzip","encoded_length":25}}}"#;
    let read = draft(text).expect("accepted").attachments;
    let names: Vec<&str> = read.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["s", "i", "e", "f", "g"]);
    let data: Vec<DraftData> = read.iter().map(|a| a.data.clone()).collect();
    let expected = [
        DraftData::Stub,
        DraftData::Inline(b"hello".to_vec()),
        DraftData::Inline(Vec::new()),
        DraftData::Follows { length: Some(5), plain_length: None },
        DraftData::Follows { length: Some(25), plain_length: Some(5) },
    ];
    assert_eq!(data, expected);
    assert_eq!((read[0].revpos, read[0].digest.as_deref()), (Some(3), Some("md5-x")));
    assert_eq!((read[1].content_type.as_deref(), read[1].revpos), (Some("text/plain"), None));
    assert_eq!(read[4].encoding.as_deref(), Some("gzip"));
}

#[test]
fn prepared_bodies_are_the_same_from_members_and_from_text() {
    let Ok(Value::Object(body)) = json::parse(br#"{"a":[1,2],"b":{"c":1.5},"d":"\u00e9"}"#) else {
        panic!("an object")
    };
    let prepared = PreparedBody::new(&body);
    assert_eq!(prepared.text, "{\"a\":[1,2],\"b\":{\"c\":1.5},\"d\":\"é\"}");
    assert_eq!(PreparedBody::from_text(prepared.text.clone()), Ok(prepared));
    assert_eq!(PreparedBody::from_text(Bytes::from_static(b"[]")), Err(JsonError));
}

#[test]
fn a_large_body_has_the_revision_of_its_term_without_keeping_that() {
    let long = "x".repeat(limits::TERM_OF_TEXT_BYTES);
    for (rest, is_of_text) in
        [("1", true), ("-0", true), ("[1.5]", false), ("{\"a\":-0.0}", false), ("[1e2,\"\\\"\"]", false)]
    {
        let text = format!("{{\"long\":\"{long}\",\"rest\":{rest}}}");
        let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
        let (body, term) = (PreparedBody::new(&object), revision::encode_body(&object));
        assert_eq!(body.term == Term::OfText, is_of_text, "{rest}");
        assert_eq!(body.sent_term().is_none(), is_of_text);
        let parent = Revision::parse("1-abc").unwrap();
        for parent in [None, Some(&parent)] {
            assert_eq!(body.revision(false, parent, &[]), revision::compute(false, parent, &term, &[]), "{rest}");
        }
        let sent = PreparedBody::from_text_and_term(body.text.clone(), body.sent_term()).unwrap();
        assert_eq!(sent.revision(true, None, &[]), body.revision(true, None, &[]));
    }
    let cut = format!("{{\"long\":\"{long}\",\"rest\":}}");
    assert!(PreparedBody::from_text(cut.into()).is_err());
}
