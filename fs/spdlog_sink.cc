#include "fs/spdlog_sink.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/file_io.h"
#include "fs/rate_limiter.h"

namespace varve::fs {
namespace {

constexpr std::chrono::seconds kPeriod(10);

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

Result<LogSink> make_spdlog_sink(const std::string& path) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    spdlog::sink_ptr sink;
    if (path.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      // spdlog would make the directories of a path that was mistyped.
      VARVE_TRY(open_file(path, O_WRONLY | O_CREAT | O_APPEND));
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    }
    logger = std::make_shared<spdlog::logger>("varvefs", std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    return fail(ErrorCode::kIo, error.what());
  }
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->flush_on(spdlog::level::info);
  // A full disk costs log lines and nothing else.
  logger->set_error_handler([](const std::string&) {});
  auto limiter = std::make_shared<RateLimiter>(kPeriod);
  return LogSink(
      [logger, limiter](LogLevel level, const std::string& key, const std::string& text) {
        uint64_t held_back_count = 0;
        if (!key.empty()) {
          const auto passed = limiter->pass(key, MonotonicClock::now());
          if (!passed) return;
          held_back_count = *passed;
        }
        if (held_back_count > 0) {
          logger->log(to_spdlog(level), "{} ({} more like it)", text, held_back_count);
        } else {
          logger->log(to_spdlog(level), "{}", text);
        }
      });
}

}  // namespace varve::fs
