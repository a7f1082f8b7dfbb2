//! Links the binary to a fixed address. The binary includes the sample, and otherwise each start of the sample would
//! begin with several hundred thousand relocations: three of the milliseconds of a cold start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
