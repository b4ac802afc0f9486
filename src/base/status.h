// Early return of absl::Status. Errors are values for what depends on a client, a file, capacity or
// a device; HS_CHECK is for our own state.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define HS_RETURN_IF_ERROR(expression)                                            \
  do {                                                                            \
    if (absl::Status hs_status = (expression); !hs_status.ok()) return hs_status; \
  } while (false)

#define HS_CONCAT_INNER(a, b) a##b
#define HS_CONCAT(a, b) HS_CONCAT_INNER(a, b)

// HS_ASSIGN_OR_RETURN(auto value, function_returning_status_or());
#define HS_ASSIGN_OR_RETURN(declaration, expression) \
  HS_ASSIGN_OR_RETURN_INNER(HS_CONCAT(hs_statusor_, __LINE__), declaration, expression)
#define HS_ASSIGN_OR_RETURN_INNER(name, declaration, expression) \
  auto name = (expression);                                      \
  if (!name.ok()) return name.status();                          \
  declaration = std::move(*name)
