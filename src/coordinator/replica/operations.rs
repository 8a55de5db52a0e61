//! What a room of the coordinator does with a database: one small type per subject, and one trait that gives them out.
//!
//! [`Database`](crate::coordinator::Database) is what all rooms share: its record, its settings and its layout. The
//! operations of a room are methods of types of that room. Each borrows the database and reaches what it needs of it.
//! A file that uses a room's operations imports the room's trait: the arrow between rooms is in the `use` lines.

/// Declares the types of one room and the trait through which a database gives them out.
macro_rules! database_operations {
    (
        $(#[$trait_doc:meta])*
        trait $trait:ident;
        $($(#[$doc:meta])* $method:ident: $type:ident;)+
    ) => {
        $(#[$trait_doc])*
        pub trait $trait {
            $($(#[$doc])* fn $method(&self) -> $type<'_>;)+
        }

        impl $trait for std::sync::Arc<$crate::coordinator::replica::database::Database> {
            $(fn $method(&self) -> $type<'_> {
                $type { database: self }
            })+
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $type<'d> {
                database: &'d std::sync::Arc<$crate::coordinator::replica::database::Database>,
            }

            impl std::ops::Deref for $type<'_> {
                type Target = std::sync::Arc<$crate::coordinator::replica::database::Database>;

                fn deref(&self) -> &Self::Target {
                    self.database
                }
            }
        )+
    };
}

pub(in crate::coordinator) use database_operations;
