# Everything comes from Debian's packages; tools/install_dependencies.sh installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(OpenMP COMPONENTS C)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
find_program(PROTOC_C protoc-c REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h REQUIRED)
find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED
             PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
find_path(OPENBLAS_INCLUDE cblas.h REQUIRED
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
find_path(RANDOM123_INCLUDE Random123/philox.h REQUIRED)
