//! One source, two instruction sets: the same scalar body compiled for the baseline and for AVX2.
//!
//! No fused multiply-add is enabled and every sum has a fixed order, so both give the same bits.

/// Defines a safe function whose body is also compiled with AVX2 and chosen at run time.
macro_rules! dispatched {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        pub(super) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)] // it must be compiled into the AVX2 caller
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was detected on this processor in the line above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}

pub(super) use dispatched;
