//! Configuration: CouchDB's INI files, built-in defaults, changes at run time.
