//! Holds the shape of the workspace: direction of dependencies, use of the given packages, tidiness.
