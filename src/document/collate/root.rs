//! The root collation with its own data alone. What `icu_collator` makes by itself keeps the data of all languages in
//! the program, 2 MB that nothing reads.

use std::sync::LazyLock;

use icu_collator::options::CollatorOptions;
use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadataV1, CollationReorderingV1, CollationRootV1,
    CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_normalizer::provider::{Baked as BakedForms, NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::{DataError, DataErrorKind, DataProvider, DataRequest, DataResponse};

/// Gives what the root collation asks for.
struct Root;

macro_rules! given_by {
    ($from:expr => $($marker:ty),*) => {$(
        impl DataProvider<$marker> for Root {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                $from.load(request)
            }
        }
    )*};
}

given_by!(Baked => CollationDiacriticsV1, CollationJamoV1, CollationMetadataV1, CollationRootV1);
given_by!(Baked => CollationSpecialPrimariesV1);
given_by!(BakedForms => NormalizerNfdDataV1, NormalizerNfdTablesV1);

macro_rules! of_languages_alone {
    ($($marker:ty),*) => {$(
        impl DataProvider<$marker> for Root {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                Err(DataErrorKind::IdentifierNotFound.with_req(<$marker as icu_provider::DataMarker>::INFO, request))
            }
        }
    )*};
}

of_languages_alone!(CollationTailoringV1, CollationReorderingV1);

/// The collator of the root collation.
pub(super) fn root() -> &'static CollatorBorrowed<'static> {
    static DATA: LazyLock<icu_collator::Collator> = LazyLock::new(|| {
        let (preferences, options) = (CollatorPreferences::default(), CollatorOptions::default());
        // Invariant: its data is compiled in.
        icu_collator::Collator::try_new_unstable(&Root, preferences, options).expect("root collation")
    });
    static ROOT: LazyLock<CollatorBorrowed<'static>> = LazyLock::new(|| DATA.as_borrowed());
    &ROOT
}
