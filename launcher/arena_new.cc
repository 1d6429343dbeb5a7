/// The C++ heap of `varve`: from a fixed arena first, which costs a launch neither a system call
/// nor an address space of its own, and from libc's heap when that is used up. What comes from the
/// arena is given back only in the reverse order of its coming: a launch lives for milliseconds,
/// and one that waits for a long command allocates nothing meanwhile that the heap would not take.
/// `varve` has one thread.
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>

namespace {

constexpr size_t kArenaBytes = 256 * 1024;
constexpr size_t kAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

alignas(kAlignment) unsigned char arena[kArenaBytes];
size_t used = 0;

/// What a block of `size` takes of the arena: even nothing gets an address of its own.
size_t taken(size_t size) {
  return size == 0 ? kAlignment : (size + kAlignment - 1) & ~(kAlignment - 1);
}
bool is_in_arena(const void* pointer) {
  const auto* const byte = static_cast<const unsigned char*>(pointer);
  return byte >= arena && byte < arena + kArenaBytes;
}

/// What libstdc++ puts in front of an exception: 128 bytes in GCC 4.5 and later on 64-bit machines.
constexpr size_t kExceptionHeaderBytes = 128;

}  // namespace

void* operator new(size_t size) {
  if (size <= kArenaBytes && taken(size) <= kArenaBytes - used) {
    void* const pointer = arena + used;
    used += taken(size);
    return pointer;
  }
  if (void* const pointer = std::malloc(size == 0 ? 1 : size)) return pointer;
  throw std::bad_alloc();
}

void operator delete(void* pointer) noexcept {
  if (!is_in_arena(pointer)) std::free(pointer);
}

void operator delete(void* pointer, size_t size) noexcept {
  if (!is_in_arena(pointer)) return std::free(pointer);
  const size_t start = static_cast<size_t>(static_cast<unsigned char*>(pointer) - arena);
  if (start + taken(size) == used) used = start;
}

// libstdc++'s own take 72 KiB of libc's heap at each start, in case an exception comes when memory
// is short. A launch throws none.
extern "C" {

void* __cxa_allocate_exception(size_t size) noexcept {
  void* const block = std::calloc(1, kExceptionHeaderBytes + size);
  if (block == nullptr) std::terminate();
  return static_cast<unsigned char*>(block) + kExceptionHeaderBytes;
}
void __cxa_free_exception(void* exception) noexcept {
  std::free(static_cast<unsigned char*>(exception) - kExceptionHeaderBytes);
}
void* __cxa_allocate_dependent_exception() noexcept {
  void* const block = std::calloc(1, kExceptionHeaderBytes);
  if (block == nullptr) std::terminate();
  return block;
}
void __cxa_free_dependent_exception(void* exception) noexcept {
  std::free(exception);
}
}
