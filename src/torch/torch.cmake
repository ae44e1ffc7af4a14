# trireme::torch, against the user's own libtorch; the one inside the pip package is enough.
if(NOT Torch_DIR)
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    # Found without importing it: that would take seconds.
    execute_process(COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util, os; print(os.path.join(os.path.dirname(importlib.util.find_spec('torch').origin), 'share', 'cmake'))"
      OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
find_package(Torch QUIET HINTS ${torch_prefix})

if(Torch_FOUND)
  add_library(trireme_torch SHARED torch/torch.cpp)
  add_library(trireme::torch ALIAS trireme_torch)
  target_link_libraries(trireme_torch PUBLIC trireme ${TORCH_LIBRARIES})
  set_target_properties(trireme_torch PROPERTIES
    EXPORT_NAME torch VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
else()
  message(STATUS "libtorch was not found: trireme::torch is left out (set Torch_DIR to have it)")
endif()
