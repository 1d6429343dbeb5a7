// Reads a tree in the ways that benchmarks time, where an interpreter would be the bottleneck.
//
//   tree_reader find ROOT                  lists every directory and stats every path
//   tree_reader cat ROOT THREADS           reads every regular file to its end
//   tree_reader open ROOT COUNT            opens and closes COUNT files, spread over the tree
//   tree_reader random ROOT THREADS COUNT [PASSES]
//                                          COUNT reads of 4 KiB at random pages, by THREADS
//                                          threads; the same pages PASSES times
//
// Prints one JSON object: seconds, and what was done in them; latencies in microseconds. Threads
// are up and the work of `open` and `random` is listed before the clock starts; it is the same for
// the same tree. Listing warms what it touches (names and attributes): drop caches with
// --list-first FILE, which writes the list to FILE in one run and takes it from there in the next.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPageBytes = 4096;
constexpr size_t kReadBytes = 128 * 1024;

struct File {
  std::string path;
  uint64_t size = 0;
};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "tree_reader: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Adds every regular file below `folder` to `files` and counts every path.
void list_tree(const std::string& folder, std::vector<File>& files, uint64_t& paths) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) die(folder);
  std::vector<std::string> folders;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    std::string path = folder + "/" + name;
    struct stat status;
    if (lstat(path.c_str(), &status) != 0) die(path);
    paths++;
    if (S_ISDIR(status.st_mode)) {
      folders.push_back(std::move(path));
    } else if (S_ISREG(status.st_mode)) {
      files.push_back({std::move(path), static_cast<uint64_t>(status.st_size)});
    }
  }
  closedir(dir);
  for (const std::string& child : folders) list_tree(child, files, paths);
}

/// The regular files of `root` in bytewise order: from `list_file` if it exists, else from the
/// tree, and then written there.
std::vector<File> files_of(const std::string& root, const std::string& list_file) {
  std::vector<File> files;
  if (!list_file.empty()) {
    if (std::FILE* list = std::fopen(list_file.c_str(), "rb")) {
      char path[kPageBytes];
      uint64_t size = 0;
      while (std::fscanf(list, "%" SCNu64 " %4095[^\n]\n", &size, path) == 2) {
        files.push_back({root + path, size});
      }
      std::fclose(list);
      return files;
    }
  }
  uint64_t paths = 0;
  list_tree(root, files, paths);
  std::erase_if(files, [](const File& file) { return file.path.find('\n') != std::string::npos; });
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  if (!list_file.empty()) {
    std::FILE* list = std::fopen(list_file.c_str(), "wb");
    if (list == nullptr) die(list_file);
    for (const File& file : files) {
      std::fprintf(list, "%" PRIu64 " %s\n", file.size, file.path.c_str() + root.size());
    }
    if (std::fclose(list) != 0) die(list_file);
  }
  return files;
}

/// Runs `work()` on `count` threads and waits for all. Returns the seconds that it took them once
/// all had been started.
template <class Work>
double on_threads(size_t count, const Work& work) {
  std::latch started(static_cast<std::ptrdiff_t>(count));
  std::latch go(1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; i++) {
    threads.emplace_back([&] {
      started.count_down();
      go.wait();
      work();
    });
  }
  started.wait();
  const auto start = Clock::now();
  go.count_down();
  for (std::thread& thread : threads) thread.join();
  return seconds_since(start);
}

void print_latencies(const char* what, double seconds, std::vector<double> latencies_us) {
  std::sort(latencies_us.begin(), latencies_us.end());
  double sum_us = 0;
  for (double latency : latencies_us) sum_us += latency;
  const size_t count = latencies_us.size();
  std::printf(
      "{\"seconds\": %.6f, \"%s\": %zu, \"p50_us\": %.2f, \"p95_us\": %.2f, "
      "\"p99_us\": %.2f, \"mean_us\": %.2f}\n",
      seconds, what, count, latencies_us[count / 2], latencies_us[count * 95 / 100],
      latencies_us[count * 99 / 100], sum_us / static_cast<double>(count));
}

void run_find(const std::string& root) {
  std::vector<File> files;
  uint64_t paths = 1;
  const auto start = Clock::now();
  list_tree(root, files, paths);
  std::printf("{\"seconds\": %.6f, \"paths\": %" PRIu64 "}\n", seconds_since(start), paths);
}

void run_cat(const std::vector<File>& files, size_t thread_count) {
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> bytes{0};
  const double seconds = on_threads(thread_count, [&] {
    std::vector<char> buffer(kReadBytes);
    for (size_t i = next++; i < files.size(); i = next++) {
      const varve::UniqueFd fd(open(files[i].path.c_str(), O_RDONLY | O_CLOEXEC));
      if (fd.get() < 0) die(files[i].path);
      ssize_t got = 0;
      while ((got = read(fd.get(), buffer.data(), buffer.size())) > 0) {
        bytes += static_cast<uint64_t>(got);
      }
      if (got < 0) die(files[i].path);
    }
  });
  std::printf("{\"seconds\": %.6f, \"bytes\": %" PRIu64 "}\n", seconds, bytes.load());
}

void run_open(const std::vector<File>& files, size_t count) {
  std::vector<double> latencies_us;
  const auto start = Clock::now();
  for (size_t i = 0; i < count; i++) {
    const File& file = files[i * files.size() / count];
    const auto before = Clock::now();
    const varve::UniqueFd fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    latencies_us.push_back(seconds_since(before) * 1e6);
    if (fd.get() < 0) die(file.path);
  }
  print_latencies("opens", seconds_since(start), std::move(latencies_us));
}

/// The same pages for the same files: a page is drawn uniformly over all whole pages of the tree.
std::vector<std::pair<size_t, uint64_t>> random_pages(const std::vector<File>& files,
                                                      size_t count) {
  std::vector<uint64_t> first_page;
  uint64_t pages = 0;
  for (const File& file : files) {
    first_page.push_back(pages);
    pages += file.size / kPageBytes;
  }
  if (pages == 0) die("no file has a whole page");
  std::mt19937_64 random(1);
  std::vector<std::pair<size_t, uint64_t>> drawn;
  for (size_t i = 0; i < count; i++) {
    const uint64_t page = random() % pages;
    const auto after = std::upper_bound(first_page.begin(), first_page.end(), page);
    const auto file = static_cast<size_t>(after - first_page.begin()) - 1;
    drawn.emplace_back(file, (page - first_page[file]) * kPageBytes);
  }
  return drawn;
}

void run_random(const std::vector<File>& files, size_t thread_count, size_t count, size_t passes) {
  const auto pages = random_pages(files, count);
  std::vector<double> latencies_us(count * passes);
  std::vector<varve::UniqueFd> fds(files.size());
  for (const auto& [file, offset] : pages) {
    if (fds[file].get() >= 0) continue;
    fds[file] = varve::UniqueFd(open(files[file].path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fds[file].get() < 0) die(files[file].path);
  }
  std::atomic<size_t> next{0};
  const double seconds = on_threads(thread_count, [&] {
    char buffer[kPageBytes];
    for (size_t i = next++; i < latencies_us.size(); i = next++) {
      const auto [file, offset] = pages[i % count];
      const auto before = Clock::now();
      if (pread(fds[file].get(), buffer, sizeof(buffer), static_cast<off_t>(offset)) !=
          static_cast<ssize_t>(sizeof(buffer))) {
        die(files[file].path);
      }
      latencies_us[i] = seconds_since(before) * 1e6;
    }
  });
  print_latencies("reads", seconds, std::move(latencies_us));
}

size_t number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string list_file;
  if (arguments.size() > 2 && arguments[0] == "--list-first") {
    list_file = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  const std::string kind = arguments.empty() ? "" : arguments[0];
  const size_t count = arguments.size();
  if (kind == "find" && count == 2) {
    run_find(arguments[1]);
  } else if (kind == "cat" && count == 3) {
    run_cat(files_of(arguments[1], list_file), number(arguments[2]));
  } else if (kind == "open" && count == 3) {
    run_open(files_of(arguments[1], list_file), number(arguments[2]));
  } else if (kind == "random" && (count == 4 || count == 5)) {
    run_random(files_of(arguments[1], list_file), number(arguments[2]), number(arguments[3]),
               count == 5 ? number(arguments[4]) : 1);
  } else {
    std::fprintf(stderr, "usage: see the first comment of benchmarks/tree_reader.cc\n");
    return 2;
  }
  return 0;
}
