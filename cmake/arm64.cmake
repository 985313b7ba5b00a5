# A build for Debian on 64-bit Arm with Debian's cross compiler: tools/arm64.sh, which sets
# ECH_SYSROOT to a folder with that system's libraries and headers.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ECH_SYSROOT)
set(CMAKE_SYSROOT ${ECH_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${ECH_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# Tests and the programs that a build runs.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${ECH_SYSROOT})
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ECH_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${ECH_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${ECH_SYSROOT}/usr/share/pkgconfig)
