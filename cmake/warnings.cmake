add_library(trireme_warnings INTERFACE)
target_compile_options(trireme_warnings INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms of g++ 12 inside std::string, std::variant and coroutines.
  target_compile_options(trireme_warnings INTERFACE -Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-mismatched-new-delete)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TRIREME_UNITY)
  # Sources look like headers to it then: it warns about classes that use their unnamed namespaces.
  target_compile_options(trireme_warnings INTERFACE -Wno-subobject-linkage)
endif()

if(TRIREME_SANITIZE)
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()
