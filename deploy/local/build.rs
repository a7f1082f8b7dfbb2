//! Links the binary to a fixed address. Pods run the sample as this binary; a position-independent one would begin with
//! several hundred thousand relocations, which take 3 ms of each cold start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
