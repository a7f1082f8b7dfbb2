//! Runs vector files through the cores, and API scenarios against a server.
