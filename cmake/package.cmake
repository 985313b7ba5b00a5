# The Debian package echelon-train, which tools/deb.sh builds. Libraries that the program opens at run
# time (Open MPI's, CUDA's) are no dependencies.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME echelon-train)
set(CPACK_PACKAGE_CONTACT "The Echelon authors <echelon@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(ECH_HAS_BLAS) # the variant whose threads are OpenMP's; the library's own file allows any
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libopenblas0-openmp")
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Plans, verifies and trains large neural networks across many devices
 A run file names the model, the data and the layout over devices. The program
 prints the plan of each rank in steps and bytes before anything is allocated,
 compares a layout with one rank in fp64, and trains.")
include(CPack)
