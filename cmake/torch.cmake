# The user's own libtorch, for trireme::torch; the one inside the pip package is enough. At the top level, so that every
# folder sees its targets.
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
include(${CMAKE_CURRENT_LIST_DIR}/nccl.cmake)
if(TARGET torch_cuda)
  trireme_find_nccl(${TORCH_INSTALL_PREFIX} TRIREME_NCCL_INCLUDE_DIR)
endif()
