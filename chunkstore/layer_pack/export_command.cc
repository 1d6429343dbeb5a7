#include <fmt/format.h>

#include "base/bytes.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/layer_pack/build_session.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/erofs_export.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/output_file.h"
#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/layer_pack/tar_export.h"
#include "chunkstore/layer_pack/text_output.h"

namespace varve::layer_pack {
namespace {

Status print_result(const ExportOptions& options, const ToolIo& io,
                    const boost::json::object& result, const std::string& text) {
  // The file itself may be what standard output carries.
  if (options.tar_file == "-" || options.erofs_file == "-") return {};
  if (options.is_json) {
    print_json(io, result);
  } else {
    print_line(io, text);
  }
  return finish_output(io);
}

Status export_as_tar(const ExportOptions& options, const ImageView& view, const ToolIo& io) {
  VARVE_ASSIGN(OutputFile file, OutputFile::create(options.tar_file));
  TarExportCounts counts;
  {
    Progress progress(io, "exporting");
    VARVE_ASSIGN(counts, export_tar(view, file, progress));
  }
  VARVE_TRY(file.publish());
  if (counts.skipped_sockets > 0) {
    fmt::print(io.err, "layer-pack: {} sockets left out: a tar cannot hold them\n",
               counts.skipped_sockets);
  }
  return print_result(options, io,
                      {{"tar", options.tar_file},
                       {"entries", counts.entries},
                       {"skipped_sockets", counts.skipped_sockets}},
                      fmt::format("{}: {} entries", options.tar_file, counts.entries));
}

Status export_as_erofs(const ExportOptions& options,
                       const std::shared_ptr<chunkstore::Store>& store, const ImageView& view,
                       bool is_image, const ToolIo& io) {
  VARVE_ASSIGN(OutputFile file, OutputFile::create(options.erofs_file));
  uint64_t image_bytes = 0;
  {
    Progress progress(io, "exporting");
    if (is_image) {
      VARVE_ASSIGN(
          image_bytes,
          export_flattened(store, view,
                           chunkstore::temp_directory_or_default(options.pack.temp_directory), file,
                           progress));
    } else {
      VARVE_ASSIGN(image_bytes, export_layer(store, view, file, progress));
    }
  }
  VARVE_TRY(file.publish());
  return print_result(options, io, {{"erofs", options.erofs_file}, {"image_bytes", image_bytes}},
                      fmt::format("{}: {}", options.erofs_file, human_bytes(image_bytes)));
}

}  // namespace

Status run_export(const ExportOptions& options, const ToolIo& io) {
  VARVE_TRY(check_temp_dir(options.pack));
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  VARVE_ASSIGN(const ResolvedName name, resolve_name(chunkstore::ImageStore(store), options.image));
  VARVE_ASSIGN(const ImageView view,
               ImageView::open(store, name.layers, options.pack.temp_directory));
  return options.tar_file.empty()
             ? export_as_erofs(options, store, view, name.image.has_value(), io)
             : export_as_tar(options, view, io);
}

}  // namespace varve::layer_pack
