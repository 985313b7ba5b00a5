# ech_kernel_cpu of a build with sanitizers is the one of the release build, which is configured and
# built on demand.
set(ECH_KERNELS "${PROJECT_SOURCE_DIR}/build/release" CACHE PATH
    "release build whose CPU kernels a build with sanitizers links")
set(archive ${ECH_KERNELS}/src/kernel/libech_kernel_cpu.a)
if(EXISTS ${ECH_KERNELS}/CMakeCache.txt)
  file(STRINGS ${ECH_KERNELS}/CMakeCache.txt theirs REGEX "^ECH_ONEDNN:")
  if(theirs AND NOT theirs MATCHES "=${ECH_ONEDNN}$")
    message(FATAL_ERROR "${ECH_KERNELS} has ${theirs}, this build ECH_ONEDNN=${ECH_ONEDNN}: "
                        "configure both alike, or name another folder by ECH_KERNELS")
  endif()
else()
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${ECH_KERNELS}
                          -G ${CMAKE_GENERATOR} -DCMAKE_BUILD_TYPE=Release
                          -DECH_ONEDNN=${ECH_ONEDNN} -DECH_BLAS=${ECH_BLAS}
                          -DECH_UCX=${ECH_UCX} -DECH_TESTS=${ECH_TESTS}
                  OUTPUT_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "cmake cannot configure ${ECH_KERNELS}, whose CPU kernels this build links")
  endif()
endif()
add_custom_target(release_kernels BYPRODUCTS ${archive}
                  COMMAND ${CMAKE_COMMAND} --build ${ECH_KERNELS} --target ech_kernel_cpu
                  COMMENT "CPU kernels of ${ECH_KERNELS}" VERBATIM USES_TERMINAL)
add_library(ech_kernel_cpu STATIC IMPORTED GLOBAL)
set_target_properties(ech_kernel_cpu PROPERTIES IMPORTED_LOCATION ${archive})
add_dependencies(ech_kernel_cpu release_kernels)
