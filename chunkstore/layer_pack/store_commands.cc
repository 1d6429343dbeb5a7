// verify, stats and gc.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/layer_pack/text_output.h"
#include "chunkstore/read/stats.h"
#include "chunkstore/read/verify.h"
#include "chunkstore/store/gc.h"

namespace varve::layer_pack {
namespace {

namespace json = boost::json;

json::object verify_json(const chunkstore::VerifyResult& result) {
  json::array faults;
  for (const chunkstore::VerifyFault& fault : result.faults) {
    faults.push_back(json::object{{"key", json_name(fault.key)}, {"message", fault.message}});
  }
  return {{"packs", result.pack_count},   {"chunks", result.chunk_count},
          {"layers", result.layer_count}, {"placements", result.placement_count},
          {"images", result.image_count}, {"refs", result.ref_count},
          {"faults", std::move(faults)}};
}

std::string image_name(const chunkstore::ImageStats& image) {
  if (image.refs.empty()) return image.id.short_hex();
  return fmt::format("{} {}", image.id.short_hex(), fmt::join(image.refs, " "));
}

json::object stats_json(const chunkstore::StoreStats& stats) {
  json::array images;
  for (const chunkstore::ImageStats& image : stats.images) {
    images.push_back(json::object{{"id", image.id.hex()},
                                  {"refs", json::value_from(image.refs)},
                                  {"layers", image.layer_count},
                                  {"image_bytes", image.image_bytes},
                                  {"chunks", image.chunk_count},
                                  {"raw_bytes", image.raw_bytes},
                                  {"stored_bytes", image.stored_bytes},
                                  {"exclusive_bytes", image.exclusive_bytes}});
  }
  json::array shared;
  for (const chunkstore::SharedStats& pair : stats.shared) {
    shared.push_back(json::object{{"first", stats.images[pair.first].id.hex()},
                                  {"second", stats.images[pair.second].id.hex()},
                                  {"shared_bytes", pair.shared_bytes}});
  }
  return {{"packs", stats.pack_count},
          {"pack_bytes", stats.pack_bytes},
          {"layers", stats.layer_count},
          {"layer_bytes", stats.layer_bytes},
          {"placements", stats.placement_count},
          {"placement_bytes", stats.placement_bytes},
          {"image_bytes", stats.image_bytes},
          {"refs", stats.ref_count},
          {"chunks", stats.chunk_count},
          {"raw_bytes", stats.raw_bytes},
          {"stored_bytes", stats.stored_bytes},
          {"dedup_ratio", stats.dedup_ratio()},
          {"compression_ratio", stats.compression_ratio()},
          {"images", std::move(images)},
          {"shared", std::move(shared)}};
}

void print_stats(const ToolIo& io, const chunkstore::StoreStats& stats) {
  print_line(io,
             fmt::format("packs       {:>8}  {}", stats.pack_count, human_bytes(stats.pack_bytes)));
  print_line(
      io, fmt::format("layers      {:>8}  {}", stats.layer_count, human_bytes(stats.layer_bytes)));
  print_line(io, fmt::format("placements  {:>8}  {}", stats.placement_count,
                             human_bytes(stats.placement_bytes)));
  print_line(io, fmt::format("images      {:>8}  {} in all", stats.image_count,
                             human_bytes(stats.image_bytes)));
  print_line(io, fmt::format("chunks      {:>8}  {}, stored {}", stats.chunk_count,
                             human_bytes(stats.raw_bytes), human_bytes(stats.stored_bytes)));
  print_line(io, fmt::format("sharing saves {:.2f} x, compression {:.2f} x", stats.dedup_ratio(),
                             stats.compression_ratio()));
  for (const chunkstore::ImageStats& image : stats.images) {
    print_line(io,
               fmt::format("image {}: {} layers, {}, stored {}, {} its own", image_name(image),
                           image.layer_count, human_bytes(image.image_bytes),
                           human_bytes(image.stored_bytes), human_bytes(image.exclusive_bytes)));
  }
  for (const chunkstore::SharedStats& pair : stats.shared) {
    print_line(io,
               fmt::format("{} and {} share {}", image_name(stats.images[pair.first]),
                           image_name(stats.images[pair.second]), human_bytes(pair.shared_bytes)));
  }
}

json::object gc_json(const chunkstore::GcResult& result) {
  return {{"live", result.live_count},
          {"live_bytes", result.live_bytes},
          {"condemned", result.condemned_count},
          {"condemned_bytes", result.condemned_bytes},
          {"waiting", result.waiting_count},
          {"waiting_bytes", result.waiting_bytes},
          {"deleted", result.deleted_count},
          {"deleted_bytes", result.deleted_bytes},
          {"revived", result.revived_count},
          {"expired_leases", result.expired_lease_count},
          {"temporary_files", result.temporary_count},
          {"missing", json::value_from(result.missing)}};
}

void print_gc(const ToolIo& io, const chunkstore::GcResult& result) {
  const auto line = [&](const char* what, uint64_t count, uint64_t bytes) {
    print_line(io, fmt::format("{:<10} {:>8} objects  {}", what, count, human_bytes(bytes)));
  };
  line("needed", result.live_count, result.live_bytes);
  line("condemned", result.condemned_count, result.condemned_bytes);
  line("waiting", result.waiting_count, result.waiting_bytes);
  line("deleted", result.deleted_count, result.deleted_bytes);
  if (result.revived_count > 0) print_line(io, fmt::format("revived    {}", result.revived_count));
  for (const std::string& key : result.missing) print_line(io, "missing    " + key);
}

}  // namespace

Status run_verify(const VerifyOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  chunkstore::VerifyResult result;
  {
    Progress progress(io, "verifying");
    uint64_t reported = 0;
    uint64_t expected = 0;
    chunkstore::VerifyOptions verify;
    verify.on_progress = [&](uint64_t done, uint64_t all) {
      progress.add_bytes(done - reported);
      progress.add_expected_bytes(all - expected);
      reported = done;
      expected = all;
    };
    VARVE_ASSIGN(result, chunkstore::verify_store(*store, verify));
  }
  if (options.is_json) {
    print_json(io, verify_json(result));
  } else {
    for (const chunkstore::VerifyFault& fault : result.faults) {
      print_line(io, shown_name(fault.key) + ": " + fault.message);
    }
    print_line(io, fmt::format("checked {} packs, {} chunks, {} layers, {} placements, {} images, "
                               "{} names: {} faults",
                               result.pack_count, result.chunk_count, result.layer_count,
                               result.placement_count, result.image_count, result.ref_count,
                               result.faults.size()));
  }
  VARVE_TRY(finish_output(io));
  if (!result.faults.empty()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{} faults in store {}", result.faults.size(), quoted(options.store)));
  }
  return {};
}

Status run_stats(const StatsOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  VARVE_ASSIGN(const chunkstore::StoreStats stats,
               chunkstore::collect_stats(store, chunkstore::temp_directory_or_default("")));
  if (options.is_json) {
    print_json(io, stats_json(stats));
  } else {
    print_stats(io, stats);
  }
  VARVE_TRY(finish_output(io));
  return report_damaged_names(io, options.store, stats.damaged_refs);
}

Status run_gc(const GcOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  chunkstore::GcOptions gc;
  gc.grace_s = options.grace_s;
  gc.is_dry_run = options.is_dry_run;
  VARVE_ASSIGN(const chunkstore::GcResult result, chunkstore::collect_garbage(*store, gc));
  if (options.is_json) {
    print_json(io, gc_json(result));
  } else {
    print_gc(io, result);
  }
  VARVE_TRY(finish_output(io));
  if (!result.missing.empty()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("{} objects that are needed are missing in store {}",
                            result.missing.size(), quoted(options.store)));
  }
  return {};
}

}  // namespace varve::layer_pack
