-- Health of a layout.lakehouse.dev object of any kind, for Argo CD.
--   Suspended: waits for a person (approval, or spec.suspend).   Degraded: stalled, or not ready.
--   Progressing: this generation is not taken in yet.            Healthy: all else, and it says why
-- not converged: a rewrite that waits for its budget must not hold up a sync.
local function condition(kind)
  if obj.status ~= nil and obj.status.conditions ~= nil then
    for _, found in ipairs(obj.status.conditions) do
      if found.type == kind then return found end
    end
  end
  return nil
end

local function says(found)
  if found.message ~= nil and found.message ~= "" then
    return found.reason .. ": " .. found.message
  end
  return found.reason
end

local function is(found, status)
  return found ~= nil and found.status == status
end

if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "Being deleted"}
end
if obj.status == nil or obj.status.observedGeneration == nil
    or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "Waiting for the operator to see this generation"}
end

local stalled = condition("Stalled")
if is(stalled, "True") then
  return {status = "Degraded", message = says(stalled)}
end
if obj.spec ~= nil and obj.spec.suspend == true then
  return {status = "Suspended", message = "spec.suspend is set"}
end
local reconciling = condition("Reconciling")
if is(reconciling, "True") then
  return {status = "Progressing", message = says(reconciling)}
end
local ready = condition("Ready")
if is(ready, "False") then
  return {status = "Degraded", message = says(ready)}
end
if not is(ready, "True") then
  return {status = "Progressing", message = "Not known to be ready yet"}
end

local converged = condition("Converged")
if is(converged, "True") then
  return {status = "Healthy", message = says(converged)}
end
if converged ~= nil then
  if converged.reason == "AwaitingApproval" or converged.reason == "Suspended" then
    return {status = "Suspended", message = says(converged)}
  end
  return {status = "Healthy", message = says(converged)}
end
return {status = "Healthy", message = says(ready)}
