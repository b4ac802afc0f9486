#include "engine/output_stage.h"

#include <utility>

namespace hisparse::engine {

OutputStage::OutputStage(TokenBytes token_bytes, OutputRequests requests,
                         std::size_t queue_capacity)
    : token_bytes_(std::move(token_bytes)),
      requests_(std::move(requests)),
      queue_(queue_capacity),
      thread_([this] { run(); }) {}

OutputStage::~OutputStage() {
  queue_.close();
  thread_.join();
}

void OutputStage::open(base::SequenceId id, std::shared_ptr<OutputChannel> channel,
                       std::vector<std::string> stops) {
  // Refused only after close(), when nobody listens any more.
  (void)queue_.push(Open{.id = id, .channel = std::move(channel), .stops = std::move(stops)});
}

void OutputStage::deliver(std::vector<TokenEvent> events) {
  if (!events.empty()) (void)queue_.push(std::move(events));
}

void OutputStage::run() {
  while (std::optional<Message> message = queue_.pop()) {
    if (auto* open = std::get_if<Open>(&*message)) {
      streams_.emplace(open->id, Stream{.channel = std::move(open->channel),
                                        .detokenizer = {},
                                        .stops = text::StopMatcher(std::move(open->stops))});
      continue;
    }
    for (TokenEvent& event : std::get<std::vector<TokenEvent>>(*message)) handle(std::move(event));
  }
}

void OutputStage::handle(TokenEvent event) {
  const auto found = streams_.find(event.sequence);
  // A stream that ended here (stop string, slow client) still gets the events that were on their
  // way.
  if (found == streams_.end()) return;
  bool open = true;
  if (event.token) open = emit_token(event.sequence, found->second, *event.token, event.usage);
  if (open && event.finish) {
    emit_finish(found->second, std::move(event));
    open = false;
  }
  if (!open) streams_.erase(found);
}

bool OutputStage::emit_token(base::SequenceId id, Stream& stream, base::TokenId token,
                             const Usage& usage) {
  OutputChunk chunk;
  chunk.text = stream.stops.push(stream.detokenizer.push(token_bytes_(token)));
  chunk.usage = usage;
  if (stream.stops.matched()) {
    chunk.finish.emplace();
    chunk.finish->reason = FinishReason::kStop;
    chunk.finish->stop_string = stream.stops.matched();
    // Before the client knows: its handle's end must not overtake the reason.
    requests_.stop(id);
    (void)stream.channel->push(std::move(chunk));
    return false;
  }
  // Nothing to show yet (half a character, or the beginning of a stop string): say nothing.
  if (chunk.text.empty()) return true;
  if (stream.channel->push(std::move(chunk))) return true;
  OutputChunk end;
  end.usage = usage;
  end.finish.emplace();
  end.finish->reason = FinishReason::kError;
  end.finish->status = absl::CancelledError("the client did not read its output in time");
  requests_.cancel(id);
  (void)stream.channel->push(std::move(end));
  return false;
}

void OutputStage::emit_finish(Stream& stream, TokenEvent event) {
  OutputChunk chunk;
  chunk.usage = event.usage;
  chunk.text = stream.stops.push(stream.detokenizer.flush());
  const bool ended_well =
      event.finish->reason == FinishReason::kStop || event.finish->reason == FinishReason::kLength;
  if (stream.stops.matched() && ended_well) {
    event.finish->reason = FinishReason::kStop;
    event.finish->stop_string = stream.stops.matched();
  } else {
    chunk.text += stream.stops.flush();
  }
  chunk.finish = std::move(event.finish);
  (void)stream.channel->push(std::move(chunk));
}

}  // namespace hisparse::engine
