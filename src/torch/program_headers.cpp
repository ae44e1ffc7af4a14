// Compiles nothing: CMake builds the precompiled header of programs that use libtorch for this file.
