package fleet

import (
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The fields of a run's hash:
//
//	job      what all workers agree on, as JSON
//	state    running, paused or aborted
//	started  when it was made
//	ended    when a worker first saw that all units were done
//	token    counts the leases
//	lease:N  of unit N: "UNTIL TOKEN WORKER", or "done MILLISECONDS"; none for one that is open
//	unit:N   the state of unit N
//	shard:S  "UNTIL N": shard S is worked on for unit N
//	due      when the keys that all workers have looked at are due, by the rate of the run
//
// Times are milliseconds of the server's clock.
const now = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
` + state

// state is the field of that name, or unknown. One that is too long for a state is forged.
const state = `
local function state()
  local state = redis.call('HGET', KEYS[1], 'state')
  if not state or #state > 16 then return 'unknown' end
  return state
end
`

var (
	makeScript = redis.NewScript(now + `
if redis.call('HSETNX', KEYS[1], 'job', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'state', 'running', 'started', string.format('%.0f', now))
end
return 1`)

	// endScript ends a run that is done, and returns how long it took (ARGV: milliseconds to keep it).
	endScript = redis.NewScript(now + `
if redis.call('HSETNX', KEYS[1], 'ended', string.format('%.0f', now)) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
-- It may have been paused as its last unit ended, and nobody can resume what is done.
if redis.call('HGET', KEYS[1], 'state') == 'paused' then redis.call('HSET', KEYS[1], 'state', 'running') end
local ended = tonumber(redis.call('HGET', KEYS[1], 'ended')) or now
return ended - (tonumber(redis.call('HGET', KEYS[1], 'started')) or ended)`)

	setScript = redis.NewScript(state + `
local before = state()
if before == 'unknown' then return before end
if redis.call('HEXISTS', KEYS[1], 'ended') == 1 then return 'done' end
if before ~= 'aborted' then
  redis.call('HSET', KEYS[1], 'state', ARGV[1])
  if ARGV[1] == 'aborted' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
end
return before`)

	// listScript is the names of runs, without those that no run can have.
	listScript = redis.NewScript(`
local most = ` + strconv.Itoa(mostRuns) + `
if redis.call('HLEN', KEYS[1]) > most then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' names more runs than ' .. most ..
    ': remove it, and workers that join name theirs again')
end
local names = {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if #name <= ` + strconv.Itoa(maxName) + ` then table.insert(names, name) end
end
return names`)

	// viewScript is the time, the state, and the leases of all units (ARGV: units), a line each. It
	// does not ask for their lengths, which would count as a program's HSTRLEN.
	viewScript = redis.NewScript(now + `
local pages, n, some = {}, 0, {}
for from = 0, ARGV[1] - 1, 128 do
  local last = math.min(from + 127, ARGV[1] - 1)
  for i = from, last do some[i - from + 1] = 'lease:' .. i end
  local found = redis.call('HMGET', KEYS[1], unpack(some, 1, last - from + 1))
  local leases = {}
  for i = 1, last - from + 1 do
    local lease = found[i] or ''
    if #lease > ` + strconv.Itoa(largestLease) + ` or string.find(lease, '\n', 1, true) then
      return redis.error_reply('ERR ' .. KEYS[1] .. ': the lease of unit ' .. n ..
        ' is none: start again under another --run NAME')
    end
    n = n + 1
    leases[i] = lease
  end
  table.insert(pages, table.concat(leases, '\n')) -- of miniredis, Lua joins some thousand texts at most
end
return {now, state(), table.concat(pages, '\n')}`)

	// paceScript counts keys against the rate of the run (ARGV: keys a second, keys), and returns for
	// how many milliseconds the worker waits: the generic cell rate algorithm (ITU-T I.371). No due
	// time is more than a day ahead.
	paceScript = redis.NewScript(now + `
if redis.call('HEXISTS', KEYS[1], 'job') == 0 then return 0 end
local due = tonumber(redis.call('HGET', KEYS[1], 'due')) or now
due = math.min(math.max(due, now) + ARGV[2] * 1000 / ARGV[1], now + 86400000)
redis.call('HSET', KEYS[1], 'due', string.format('%.3f', due))
return math.ceil(due - now)`)

	// takeScript leases a unit (ARGV: unit, worker, milliseconds, shards). Its token has the worker's
	// name: a fail-over may lose a lease, and count on from the one before.
	takeScript = redis.NewScript(now + `
local state = state()
local held = redis.call('HGET', KEYS[1], 'lease:' .. ARGV[1])
if held and string.sub(held, 1, 4) == 'done' then return {'done'} end
if state ~= 'running' then return {state} end
if held and tonumber(string.match(held, '^%d+')) > now then return {'taken'} end
for i = 4, #ARGV do
  local busy = redis.call('HGET', KEYS[1], 'shard:' .. ARGV[i])
  if busy and tonumber(string.match(busy, '^%d+')) > now then return {'busy'} end
end
local saved = redis.call('HGET', KEYS[1], 'unit:' .. ARGV[1]) or ''
if #saved > ` + strconv.Itoa(largestField) + ` then
  return redis.error_reply('ERR ' .. KEYS[1] .. ': what is saved of unit ' .. ARGV[1] ..
    ' is too large: start again under another --run NAME')
end
local token = redis.call('HINCRBY', KEYS[1], 'token', 1)
local till = string.format('%.0f', now + ARGV[3])
redis.call('HSET', KEYS[1], 'lease:' .. ARGV[1], till .. ' ' .. token .. ' ' .. ARGV[2])
for i = 4, #ARGV do redis.call('HSET', KEYS[1], 'shard:' .. ARGV[i], till .. ' ' .. ARGV[1]) end
return {'', token .. ' ' .. ARGV[2], saved}`)

	// tellScript renews, gives back (0 ms) or finishes ("done ...") a unit, and keeps its state
	// (ARGV: unit, token and worker, milliseconds or done, state, shards).
	tellScript = redis.NewScript(now + `
local held = redis.call('HGET', KEYS[1], 'lease:' .. ARGV[1])
if not held or string.match(held, '^%d+ (.*)$') ~= ARGV[2] then
  -- An answer that was lost: it is done by this worker.
  if held == ARGV[3] and redis.call('HGET', KEYS[1], 'unit:' .. ARGV[1]) == ARGV[4] then return 'running' end
  return 'fenced'
end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'unit:' .. ARGV[1], ARGV[4]) end
local wanted = tonumber(ARGV[3])
if not wanted then
  redis.call('HSET', KEYS[1], 'lease:' .. ARGV[1], ARGV[3])
elseif wanted == 0 then
  redis.call('HDEL', KEYS[1], 'lease:' .. ARGV[1])
else
  local till = string.format('%.0f', now + wanted)
  redis.call('HSET', KEYS[1], 'lease:' .. ARGV[1], (string.gsub(held, '^%d+', till)))
  for i = 5, #ARGV do redis.call('HSET', KEYS[1], 'shard:' .. ARGV[i], till .. ' ' .. ARGV[1]) end
end
if not wanted or wanted == 0 then
  for i = 5, #ARGV do
    local busy = redis.call('HGET', KEYS[1], 'shard:' .. ARGV[i])
    if busy and string.match(busy, '^%d+ (.*)$') == ARGV[1] then redis.call('HDEL', KEYS[1], 'shard:' .. ARGV[i]) end
  end
end
return state()`)
)

// Scripts are the scripts of runs, which a server keeps.
func Scripts() []*redis.Script {
	return []*redis.Script{makeScript, endScript, setScript, listScript, viewScript, paceScript, takeScript, tellScript}
}
