# ech_ROOM for every folder src/ROOM: the .c files in it and in its folders (those of kernel/ have rules of
# their own, see there).
set(ech_rooms_before)
foreach(room ${ECH_ROOMS})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c
       ${PROJECT_SOURCE_DIR}/src/${room}/*/*.c)
  list(FILTER sources EXCLUDE REGEX "src/(program/main\\.c$|kernel/[^/]+/)")
  if(NOT ECH_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "src/device/cuda\\.c$")
  endif()
  if(NOT ECH_HAS_UCX)
    list(FILTER sources EXCLUDE REGEX "src/comm/ucx[a-z_]*\\.c$")
  endif()
  if(sources OR EXISTS ${PROJECT_SOURCE_DIR}/src/${room}/CMakeLists.txt)
    add_library(ech_${room} STATIC ${sources})
    target_include_directories(ech_${room} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_options(ech_${room} PRIVATE -fvisibility=hidden) # libechelon.so exports echelon.h alone
    target_link_libraries(ech_${room} PUBLIC ${ech_rooms_before} m Threads::Threads)
    list(PREPEND ech_rooms_before ech_${room})
  endif()
endforeach()

include(cmake/families.cmake)
include(cmake/embed.cmake)
include(cmake/page.cmake)
target_include_directories(ech_base SYSTEM PRIVATE ${RANDOM123_INCLUDE})
target_link_libraries(ech_base PUBLIC PkgConfig::JANSSON)
target_link_libraries(ech_device PRIVATE ${CMAKE_DL_LIBS})
if(ECH_HAS_CUDA)
  target_link_libraries(ech_device PRIVATE CUDA::cudart_static)
  target_compile_definitions(ech_device PRIVATE ECH_HAS_CUDA ECH_CUDA_MAJOR="${CUDAToolkit_VERSION_MAJOR}")
endif()
target_link_libraries(ech_config PRIVATE PkgConfig::YAML)
if(ECH_HAS_UCX)
  target_include_directories(ech_comm SYSTEM PRIVATE ${UCX_INCLUDE_DIRS})
  target_compile_definitions(ech_comm PRIVATE ECH_HAS_UCX)
endif()
target_link_libraries(ech_data PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH
                      PkgConfig::ISAL PkgConfig::PROTOBUF_C)
foreach(name ZSTD LZMA BZIP2 PNG JPEG)
  if(ECH_HAS_${name})
    target_include_directories(ech_data SYSTEM PRIVATE ${${name}_INCLUDE})
    target_link_libraries(ech_data PRIVATE ${${name}_LIBRARY})
    target_compile_definitions(ech_data PRIVATE ECH_HAS_${name})
  endif()
endforeach()
target_link_libraries(ech_checkpoint PRIVATE PkgConfig::XXHASH)
target_link_libraries(ech_exec PRIVATE PkgConfig::XXHASH)
target_link_libraries(ech_app PRIVATE PkgConfig::ISAL PkgConfig::PROTOBUF_C ${CMAKE_DL_LIBS})

# Protocol buffers: target has what protoc-c makes of src/FOLDER/NOUN.proto.
function(ech_add_proto target folder noun)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
  set(made ${generated}/${noun}.pb-c)
  add_custom_command(OUTPUT ${made}.c ${made}.h
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
                     COMMAND ${PROTOC_C} --c_out=${generated}
                             -I${PROJECT_SOURCE_DIR}/src/${folder} ${noun}.proto
                     DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/${noun}.proto)
  target_sources(${target} PRIVATE ${made}.c ${made}.h)
  target_include_directories(${target} SYSTEM PRIVATE ${generated})
  set_source_files_properties(${made}.c PROPERTIES COMPILE_OPTIONS -w) # not ours to mend
endfunction()
ech_add_proto(ech_app app/train tensorboard)
ech_add_proto(ech_data data/bpe pieces)
add_subdirectory(src/kernel)
