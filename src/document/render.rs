//! A stored revision as JSON text for a client.
