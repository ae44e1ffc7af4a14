#pragma once

// Marks the symbols that the shared library exports; all others are hidden.
#if defined(_WIN32)
#define TRIREME_API
#else
#define TRIREME_API __attribute__((visibility("default")))
#endif
