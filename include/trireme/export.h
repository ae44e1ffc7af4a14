#pragma once

// Marks what the shared library shows to programs that link it; everything else stays inside.
#if defined(_WIN32)
#define TRIREME_API
#else
#define TRIREME_API __attribute__((visibility("default")))
#endif
