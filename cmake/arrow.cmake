# The user's own Arrow, for trireme::data: Arrow's CMake package, or the library inside the pip package pyarrow.
# Datasets of files also need its libraries for Parquet, datasets and queries.
find_package(Arrow QUIET)
find_package(Parquet QUIET)
find_package(ArrowDataset QUIET)
if(Arrow_FOUND AND Parquet_FOUND AND ArrowDataset_FOUND)
  add_library(trireme_arrow_library INTERFACE)
  target_link_libraries(trireme_arrow_library INTERFACE ArrowDataset::arrow_dataset_shared ArrowAcero::arrow_acero_shared
    Parquet::parquet_shared $<TARGET_NAME_IF_EXISTS:ArrowCompute::arrow_compute_shared> Arrow::arrow_shared)
else()
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('pyarrow').origin))"
      OUTPUT_VARIABLE pyarrow_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  # The file has its version in its name, and there is no plain libarrow.so.
  # Newer versions have S3 in a separate library, which registers itself when it is loaded: no symbol refers to it.
  file(GLOB pyarrow_library ${pyarrow_dir}/libarrow*.so.* ${pyarrow_dir}/libparquet.so.*)
  list(FILTER pyarrow_library INCLUDE REGEX "lib(arrow(_s3|_compute|_acero|_dataset)?|parquet)\\.so\\.[0-9]+$")
  if(pyarrow_dir AND pyarrow_library)
    add_library(trireme_arrow_library INTERFACE)
    target_include_directories(trireme_arrow_library SYSTEM INTERFACE ${pyarrow_dir}/include)
    target_link_libraries(trireme_arrow_library INTERFACE -Wl,--no-as-needed ${pyarrow_library} -Wl,--as-needed)
    target_link_options(trireme_arrow_library INTERFACE LINKER:-rpath,${pyarrow_dir})
  endif()
endif()
