// A stand-in for varvefs in the launcher's tests: speaks the same control protocol, descriptors
// included, over plain EROFS files.
//
//   fake_varvefs --run-dir DIR --images DIR
//
// Image "a+b" is the layers DIR/a.erofs and DIR/b.erofs, lowest first. DIR/a+b.config, where there
// is one, is its configuration as JSON; DIR/a+b.ids the list of large ids. Runs until its standard
// input ends, so that it cannot outlive the test that started it.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/file_io.h"
#include "base/hash.h"
#include "base/mount_api.h"
#include "launcher/fd_message.h"

namespace {

namespace json = boost::json;
using namespace varve;

struct Answer {
  int status = 200;
  std::string body;
  std::vector<UniqueFd> fds;
};

std::string layer_id(const std::string& name) {
  return sha256(as_bytes(name)).hex();
}

std::string text_of(const std::string& path, const std::string& otherwise) {
  auto bytes = read_file(path, 1 << 20);
  return bytes ? std::string(as_text(*bytes)) : otherwise;
}

Answer failure(int status, const std::string& code, const std::string& message) {
  return {
      status,
      json::serialize(json::object{{"error", json::object{{"code", code}, {"message", message}}}}),
      {}};
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

class FakeVarvefs {
 public:
  FakeVarvefs(std::string images, std::string run_dir)
      : images_(std::move(images)), run_dir_(std::move(run_dir)) {}

  Answer answer(const std::string& method, const std::string& path, const std::string& body) {
    if (method == "POST" && path == "/v1/attach") return attach(json::parse(body).get_object());
    if (method == "POST" && path == "/v1/detach") return {200, "{}", {}};
    if (path.starts_with("/v1/stats/files?layer=")) {
      return {200, R"({"files":[{"path":"/bin/busybox","size":10,"touched_bytes":4096}]})", {}};
    }
    if (path == "/v1/stats") return stats();
    return failure(404, "not found", "no such resource: " + path);
  }

 private:
  Answer stats() const {
    json::array layers;
    for (const auto& [id, bytes] : touched_) {
      layers.push_back(
          json::object{{"id", id}, {"touched_bytes", bytes}, {"fetched_bytes", bytes / 2}});
    }
    return {200, json::serialize(json::object{{"layers", std::move(layers)}}), {}};
  }

  // One kernel mount a layer, made once, in this process' private mount namespace.
  Result<UniqueFd> mount_of(const std::string& name) {
    const std::string directory = run_dir_ + "/fake-" + name;
    if (mounted_.count(name) == 0) {
      VARVE_ASSIGN(
          const UniqueFd mount,
          new_mount("erofs", {{"source", images_ + "/" + name + ".erofs"}}, MOUNT_ATTR_RDONLY));
      VARVE_TRY(make_directories(directory));
      VARVE_TRY(move_mount_to(mount.get(), AT_FDCWD, directory));
      mounted_[name] = true;
    }
    return clone_mount(AT_FDCWD, directory);
  }

  Answer attach(const json::object& request) {
    const std::string image = request.at("image").get_string().c_str();
    if (image == "hang") {
      ::pause();
    }
    Answer result;
    json::array layers;
    const json::value* mounts = request.if_contains("mounts");
    for (const std::string& name : split(image, '+')) {
      struct stat status;
      const std::string file = images_ + "/" + name + ".erofs";
      if (::stat(file.c_str(), &status) != 0) {
        return failure(404, "not found", "image '" + image + "' does not exist");
      }
      // As reading its metadata would.
      touched_[layer_id(name)] += 4096;
      layers.push_back(json::object{{"id", layer_id(name)},
                                    {"path", file},
                                    {"tree", ""},
                                    {"image_bytes", status.st_size},
                                    {"stored_bytes", status.st_size / 2},
                                    {"metadata_bytes", 0}});
      if (mounts == nullptr || !mounts->get_bool()) continue;
      auto mount = mount_of(name);
      if (!mount) return failure(500, "internal error", mount.error().to_string());
      result.fds.push_back(std::move(*mount));
    }
    json::object document;
    document["image"] = layer_id(image);
    document["config"] = json::parse(text_of(images_ + "/" + image + ".config", "{}"));
    document["ids"] = json::parse(text_of(images_ + "/" + image + ".ids", "[]"));
    document["layers"] = std::move(layers);
    document["lease"] = "fake-lease";
    result.body = json::serialize(document);
    return result;
  }

  const std::string images_;
  const std::string run_dir_;
  std::map<std::string, bool> mounted_;
  std::map<std::string, uint64_t> touched_;  // By layer.
};

void send_answer(int connection, const Answer& answer) {
  const std::string text = "HTTP/1.1 " + std::to_string(answer.status) +
                           " X\r\nContent-Type: application/json\r\nContent-Length: " +
                           std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body;
  std::vector<int> fds;
  for (const UniqueFd& fd : answer.fds) fds.push_back(fd.get());
  (void)launcher::send_message(connection, text.data(), text.size(), fds);
}

/// One complete request taken off the front of `buffer`; false when more bytes are needed.
bool take_request(std::string& buffer, std::vector<std::string>& words, std::string& body) {
  const size_t end = buffer.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  const size_t length = buffer.find("Content-Length: ");
  const size_t size = length < end ? std::stoul(buffer.substr(length + 16)) : 0;
  if (buffer.size() < end + 4 + size) return false;
  words = split(buffer.substr(0, buffer.find("\r\n")), ' ');
  body = buffer.substr(end + 4, size);
  buffer.erase(0, end + 4 + size);
  return true;
}

int serve(const std::string& run_dir, FakeVarvefs& fake) {
  // The socket gets its name when it listens: to a client that comes between, nobody answers, and
  // it starts the real varvefs.
  const std::string path = run_dir + "/fake.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 128) != 0 ||
      ::rename(path.c_str(), (run_dir + "/control.sock").c_str()) != 0) {
    std::perror("fake_varvefs");
    return 1;
  }
  std::vector<pollfd> fds{{STDIN_FILENO, POLLIN, 0}, {listener.get(), POLLIN, 0}};
  std::map<int, std::string> buffers;
  for (;;) {
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    char byte[4096];
    if (fds[0].revents != 0 && ::read(STDIN_FILENO, byte, sizeof byte) <= 0) return 0;
    if (fds[1].revents != 0) {
      const int connection = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0) fds.push_back({connection, POLLIN, 0});
    }
    for (size_t i = 2; i < fds.size();) {
      if (fds[i].revents == 0) {
        ++i;
        continue;
      }
      std::string& buffer = buffers[fds[i].fd];
      const ssize_t n = ::read(fds[i].fd, byte, sizeof byte);
      if (n <= 0) {
        buffers.erase(fds[i].fd);
        ::close(fds[i].fd);
        fds.erase(fds.begin() + static_cast<long>(i));
        continue;
      }
      buffer.append(byte, static_cast<size_t>(n));
      std::vector<std::string> words;
      std::string body;
      while (take_request(buffer, words, body)) {
        send_answer(fds[i].fd, fake.answer(words[0], words[1], body));
      }
      ++i;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: fake_varvefs --run-dir DIR --images DIR\n");
    return 2;
  }
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    std::perror("fake_varvefs: private mounts");
    return 1;
  }
  FakeVarvefs fake(argv[4], argv[2]);
  return serve(argv[2], fake);
}
