# ech_ROOM for every folder src/ROOM: the .c files in it and in its folders (those of kernel/ have rules of
# their own, see there).
set(ech_rooms_before)
foreach(room ${ECH_ROOMS})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c
       ${PROJECT_SOURCE_DIR}/src/${room}/*/*.c)
  list(FILTER sources EXCLUDE REGEX "src/(app/main\\.c$|kernel/[^/]+/)")
  if(sources OR EXISTS ${PROJECT_SOURCE_DIR}/src/${room}/CMakeLists.txt)
    add_library(ech_${room} STATIC ${sources})
    target_include_directories(ech_${room} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(ech_${room} PUBLIC ${ech_rooms_before} m Threads::Threads)
    list(PREPEND ech_rooms_before ech_${room})
  endif()
endforeach()

target_include_directories(ech_base SYSTEM PRIVATE ${RANDOM123_INCLUDE})
target_link_libraries(ech_base PUBLIC PkgConfig::JANSSON)
target_link_libraries(ech_config PRIVATE PkgConfig::YAML)
target_link_libraries(ech_comm PRIVATE MPI::MPI_C)
set_source_files_properties(src/comm/mpi.c TARGET_DIRECTORY ech_comm PROPERTIES
                            COMPILE_DEFINITIONS "ECH_MPIEXEC=\"${MPIEXEC_EXECUTABLE}\"")
target_link_libraries(ech_data PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH)
target_link_libraries(ech_checkpoint PRIVATE PkgConfig::XXHASH)
target_link_libraries(ech_exec PRIVATE PkgConfig::XXHASH)
target_link_libraries(ech_app PRIVATE PkgConfig::ISAL PkgConfig::PROTOBUF_C)
set(events ${CMAKE_CURRENT_BINARY_DIR}/generated/tensorboard.pb-c)
add_custom_command(OUTPUT ${events}.c ${events}.h
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/generated
                   COMMAND ${PROTOC_C} --c_out=${CMAKE_CURRENT_BINARY_DIR}/generated
                           -I${PROJECT_SOURCE_DIR}/src/app/train tensorboard.proto
                   DEPENDS ${PROJECT_SOURCE_DIR}/src/app/train/tensorboard.proto)
target_sources(ech_app PRIVATE ${events}.c ${events}.h)
target_include_directories(ech_app SYSTEM PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
set_source_files_properties(${events}.c PROPERTIES COMPILE_OPTIONS -w) # not ours to mend
add_subdirectory(src/kernel)
