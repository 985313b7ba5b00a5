# The planner in a browser: what plans, in WebAssembly (docs/planner.md). tools/web.sh configures this
# with emcmake, and names the sources of two libraries: ECH_YAML_SOURCE and ECH_JANSSON_SOURCE.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
# -O2 neither fuses nor reorders arithmetic, so numbers are those of the command line.
set(CMAKE_C_FLAGS_RELEASE "-O2")
add_compile_definitions(_GNU_SOURCE ECH_VERSION="${PROJECT_VERSION}")
find_program(ECH_CCACHE ccache)
if(ECH_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                ${ECH_CCACHE})
endif()
set(source ${PROJECT_SOURCE_DIR}/src)

# Of these rooms all files but those that a browser cannot have: cores, other transports, generators
# of random numbers, tokenizers. web/machine.c and web/left_out.js stand in for them.
set(rooms base config device tensor kernel comm layer optim model layout schedule draw simulate check
          data checkpoint)
set(left_out
    "base/random|device/(cores|cuda)|comm/(ucx|nccl|mpi|tcp|life)[a-z_]*|data/(bpe/.*|(chat|text|import)[a-z_]*|identity|items|libsvm|image_(writer|source|idx|cifar|folder|codec)|sink|packing|token_writer|json_scan)")
foreach(room ${rooms})
  file(GLOB files CONFIGURE_DEPENDS ${source}/${room}/*.c ${source}/${room}/*/*.c)
  list(FILTER files EXCLUDE REGEX "src/(${left_out})\\.c$|src/kernel/(cpu|cuda|ref)/")
  add_library(ech_${room} STATIC ${files})
  list(PREPEND libraries ech_${room})
endforeach()
file(GLOB app_files CONFIGURE_DEPENDS ${source}/app/advice/*.c ${source}/app/plan/*.c
     ${source}/app/search/*.c ${source}/app/setup/*.c)
add_library(ech_app STATIC ${app_files} ${source}/app/count.c ${source}/app/machine.c
            ${source}/app/metrics.c ${source}/app/serve_log.c)
foreach(noun handles plan run search)
  list(APPEND library_files ${source}/library/${noun}.c)
endforeach()
target_sources(ech_kernel PRIVATE ${source}/kernel/cuda/scratch.c)
file(GLOB ref_files CONFIGURE_DEPENDS ${source}/kernel/ref/*.c)
foreach(real F32 F64 BF16 F16)
  add_library(ech_ref_${real} OBJECT ${ref_files})
  target_compile_definitions(ech_ref_${real} PRIVATE ECH_REAL_${real})
  target_compile_options(ech_ref_${real} PRIVATE -O0) # plans name kernels, and call none
  target_sources(ech_kernel PRIVATE $<TARGET_OBJECTS:ech_ref_${real}>)
endforeach()
include(cmake/families.cmake)
include(cmake/embed.cmake)
include(cmake/page.cmake)

# libyaml and jansson, as Debian's sources have them.
set(generated ${PROJECT_BINARY_DIR}/generated)
file(GLOB yaml_files ${ECH_YAML_SOURCE}/src/*.c)
file(GLOB jansson_files ${ECH_JANSSON_SOURCE}/src/*.c)
if(NOT yaml_files OR NOT jansson_files)
  message(FATAL_ERROR "no sources of libyaml and jansson; run tools/web.sh")
endif()
add_library(yaml STATIC ${yaml_files})
target_compile_definitions(yaml PRIVATE YAML_VERSION_MAJOR=0 YAML_VERSION_MINOR=2 YAML_VERSION_PATCH=5
                           YAML_VERSION_STRING="0.2.5")
set(json_inline inline)
set(json_have_long_long 1)
set(json_have_localeconv 1)
set(json_have_atomic_builtins 1)
set(json_have_sync_builtins 1)
configure_file(${ECH_JANSSON_SOURCE}/src/jansson_config.h.in ${generated}/jansson_config.h @ONLY)
# What emscripten's C library has. Its random numbers and files are of no use to a planner.
foreach(has STDINT_H UNISTD_H SYS_TIME_H SYS_TYPES_H LOCALE_H SETLOCALE GETTIMEOFDAY GETPID
            SYNC_BUILTINS ATOMIC_BUILTINS INT32_T UINT32_T UINT16_T UINT8_T SSIZE_T)
  set(HAVE_${has} 1)
endforeach()
set(JANSSON_INITIAL_HASHTABLE_ORDER 3)
configure_file(${ECH_JANSSON_SOURCE}/cmake/jansson_private_config.h.cmake
               ${generated}/jansson_private_config.h)
add_library(jansson STATIC ${jansson_files})
target_compile_definitions(jansson PRIVATE HAVE_CONFIG_H)
include_directories(${source} ${PROJECT_SOURCE_DIR}/include)
include_directories(SYSTEM ${ECH_YAML_SOURCE}/include ${ECH_JANSSON_SOURCE}/src ${generated}
                    ${generated}/headers)
# Headers alone, of Debian's packages that a build needs in any case.
foreach(header xxhash.h Random123)
  file(COPY /usr/include/${header} DESTINATION ${generated}/headers)
endforeach()

add_executable(planner web/planner.c web/machine.c ${library_files})
target_link_libraries(planner PRIVATE ech_app ${libraries} yaml jansson)
target_link_options(planner PRIVATE
  --js-library ${PROJECT_SOURCE_DIR}/web/left_out.js -sMODULARIZE -sEXPORT_NAME=createPlanner
  -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=8MB -sENVIRONMENT=web,worker,node
  -sEXPORTED_RUNTIME_METHODS=FS,ccall,UTF8ToString -sSTRICT=0)
set_target_properties(planner PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/web/left_out.js)
