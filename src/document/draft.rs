//! A document as a client sends it: checks of the reserved members, attachments entries, revision given or not.
