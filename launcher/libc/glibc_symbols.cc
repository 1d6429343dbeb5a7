/// What glibc's headers, and the libraries that Debian built with them, call by names of glibc's
/// own: defined here for the link of `varve` with musl (see README.md beside this). Nothing here is
/// linked where glibc is.
#include <dlfcn.h>
#include <link.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {

// libstdc++ asks whether its counters need atomic instructions; `varve` never starts a thread.
char __libc_single_threaded = 1;

// libgcc's unwinder asks where the index of frames of an object is: that of the only one.
extern const ElfW(Ehdr) __ehdr_start;
extern char _end;
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  const auto* const start = reinterpret_cast<const char*>(&__ehdr_start);
  if (address < start || address >= &_end) return -1;
  const auto* const headers = reinterpret_cast<const ElfW(Phdr)*>(start + __ehdr_start.e_phoff);
  for (unsigned i = 0; i < __ehdr_start.e_phnum; ++i) {
    if (headers[i].p_type != PT_GNU_EH_FRAME) continue;
    *result = {};
    result->dlfo_map_start = const_cast<char*>(start);
    result->dlfo_map_end = &_end;
    result->dlfo_eh_frame = reinterpret_cast<void*>(headers[i].p_vaddr);
    return 0;
  }
  return -1;
}

// _FORTIFY_SOURCE=2 in Debian's libraries.
int __snprintf_chk(char* buffer, size_t size, int /*flag*/, size_t /*buffer_size*/,
                   const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, size, format, arguments);
  va_end(arguments);
  return length;
}

// GNU's variant, which returns the text; under this name musl has POSIX's, which returns a number.
char* strerror_r(int error, char* /*buffer*/, size_t /*size*/) noexcept {
  return std::strerror(error);
}

// CMSG_NXTHDR.
cmsghdr* __cmsg_nxthdr(msghdr* message, cmsghdr* header) noexcept {
  auto* const end = static_cast<unsigned char*>(message->msg_control) + message->msg_controllen;
  auto* const position = reinterpret_cast<unsigned char*>(header);
  const auto left = static_cast<size_t>(end - position);
  if (header->cmsg_len < sizeof(cmsghdr) || left < sizeof(cmsghdr) ||
      header->cmsg_len > left - sizeof(cmsghdr)) {
    return nullptr;
  }
  const size_t step = CMSG_ALIGN(header->cmsg_len);
  if (step > left - sizeof(cmsghdr)) return nullptr;
  return reinterpret_cast<cmsghdr*>(position + step);
}

// makedev.
uint64_t gnu_dev_makedev(unsigned major, unsigned minor) noexcept {
  return (static_cast<uint64_t>(major & 0xffff'f000) << 32) | ((major & 0xfffULL) << 8) |
         (static_cast<uint64_t>(minor & 0xffff'ff00) << 12) | (minor & 0xffULL);
}

// Hides musl's, whose first call looks for the kernel's shared code: four page faults, and a launch
// reads the clock three times.
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
}

// System calls that musl 1.2.3 has no function for, and fcntl by its name for 64-bit offsets.
int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const unsigned long argument = va_arg(arguments, unsigned long);
  va_end(arguments);
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}
int statx(int directory, const char* path, int flags, unsigned mask, void* status) {
  return static_cast<int>(::syscall(SYS_statx, directory, path, flags, mask, status));
}
int renameat2(int old_directory, const char* old_path, int new_directory, const char* new_path,
              unsigned flags) {
  return static_cast<int>(
      ::syscall(SYS_renameat2, old_directory, old_path, new_directory, new_path, flags));
}
int open_tree(int directory, const char* path, unsigned flags) {
  return static_cast<int>(::syscall(SYS_open_tree, directory, path, flags));
}
int move_mount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  return static_cast<int>(::syscall(SYS_move_mount, from, from_path, to, to_path, flags));
}
int mount_setattr(int directory, const char* path, unsigned flags, void* attributes, size_t size) {
  return static_cast<int>(::syscall(SYS_mount_setattr, directory, path, flags, attributes, size));
}
int fsopen(const char* type, unsigned flags) {
  return static_cast<int>(::syscall(SYS_fsopen, type, flags));
}
int fsconfig(int context, unsigned command, const char* key, const void* value, int auxiliary) {
  return static_cast<int>(::syscall(SYS_fsconfig, context, command, key, value, auxiliary));
}
int fsmount(int context, unsigned flags, unsigned attributes) {
  return static_cast<int>(::syscall(SYS_fsmount, context, flags, attributes));
}
}
