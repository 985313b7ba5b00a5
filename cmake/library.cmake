# libechelon.so: the program's rooms, of which it exports what include/echelon.h declares.
file(GLOB ech_library_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/library/*.c)
add_library(libechelon SHARED ${ech_library_sources})
target_include_directories(libechelon PUBLIC ${PROJECT_SOURCE_DIR}/include)
set_target_properties(libechelon PROPERTIES OUTPUT_NAME echelon)
if(NOT SKBUILD) # a wheel has no links, and would have three copies
  set_target_properties(libechelon PROPERTIES VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
target_link_libraries(libechelon PRIVATE ech_app)
target_link_options(libechelon PRIVATE -Wl,--no-undefined
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
set_target_properties(libechelon PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
install(TARGETS libechelon LIBRARY DESTINATION lib COMPONENT package)
install(FILES include/echelon.h include/echelon_plugin.h DESTINATION include COMPONENT package)
