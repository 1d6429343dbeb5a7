#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_dir.h"
#include "chunkstore/layer_pack/layer_pack.h"

namespace varve::layer_pack {

/// Runs the command in-process, on a store and a cache of the test's own.
class LayerPackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The index of chunks belongs to the test, not to the user who runs it.
    ::setenv("XDG_CACHE_HOME", path("cache").c_str(), 1);
    ::setenv("VARVE_STORE", ("file://" + path("store")).c_str(), 1);
  }

  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  int run(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv{"layer-pack"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ToolIo io;
    io.out = std::tmpfile();
    io.err = std::tmpfile();
    const int status = layer_pack_main(static_cast<int>(argv.size()), argv.data(), io);
    out_ = take(io.out);
    err_ = take(io.err);
    return status;
  }

  /// Runs what must succeed; returns its standard output.
  std::string ok(const std::vector<std::string>& arguments) {
    EXPECT_EQ(run(arguments), 0) << arguments.front() << ": " << err_;
    return out_;
  }

  static std::string take(std::FILE* file) {
    std::string text(static_cast<size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
    return text;
  }

  size_t published_count() const {
    size_t count = 0;
    for (const char* kind : {"layers", "placements", "images", "refs"}) {
      if (!std::filesystem::exists(path("store/") + kind)) continue;
      for (const auto& entry :
           std::filesystem::recursive_directory_iterator(path("store/") + kind)) {
        count += entry.is_regular_file();
      }
    }
    return count;
  }

  /// The text between `"key":"` and the next quote.
  static std::string json_text(const std::string& json, const std::string& key) {
    const size_t at = json.find("\"" + key + "\":\"");
    if (at == std::string::npos) return "";
    const size_t start = at + key.size() + 4;
    return json.substr(start, json.find('"', start) - start);
  }

  /// A variable of the environment for the rest of the scope; nullptr = unset.
  class ScopedVariable {
   public:
    ScopedVariable(const char* name, const char* value) : name_(name) {
      if (const char* old = std::getenv(name); old != nullptr) old_ = old;
      set(value);
    }
    ~ScopedVariable() { set(old_ ? old_->c_str() : nullptr); }

   private:
    void set(const char* value) {
      if (value != nullptr) {
        ::setenv(name_, value, 1);
      } else {
        ::unsetenv(name_);
      }
    }
    const char* name_;
    std::optional<std::string> old_;
  };

  TempDir dir_ = TempDir::create("varve-layer-pack-").value();
  std::string out_;
  std::string err_;
};

}  // namespace varve::layer_pack
