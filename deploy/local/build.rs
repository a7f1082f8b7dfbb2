//! Links the binary to a fixed address. The sample is part of it, and each start of one would otherwise begin with some
//! hundred thousand relocations: three of the milliseconds of a cold start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
