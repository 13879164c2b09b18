/* What hiredis does through the proxy. clients_test.go runs it, and expects a line for each check. */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *prefix, *text;

static void fail(const char *what, const char *got) {
  fprintf(stderr, "%s: %.300s\n", what, got ? got : "nothing");
  exit(1);
}

static redisContext *dial(const char *address) {
  char host[64];
  const char *colon = strrchr(address, ':');
  snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
  redisContext *c = redisConnect(host, atoi(colon + 1));
  if (!c || c->err) fail(address, c ? c->errstr : 0);
  return c;
}

static redisContext *r, *past;

/* next is the next reply of a connection. */
static redisReply *next(redisContext *c) {
  void *reply;
  if (redisGetReply(c, &reply) != REDIS_OK) fail("the connection", c->errstr);
  return reply;
}

/* A value that may hold any byte. */
typedef struct {
  char *bytes;
  size_t length;
} value_t;

static value_t value(int n) {
  value_t v = {malloc(strlen(text) + 16), 0};
  v.length = sprintf(v.bytes, "%d %s", n, text);
  return v;
}

static void is(redisReply *reply, value_t want) {
  if (reply->type != REDIS_REPLY_STRING || reply->len != want.length || memcmp(reply->str, want.bytes, want.length))
    fail("not the value", reply->str);
}

static void is_packed(redisReply *reply, value_t plain) {
  if (reply->type != REDIS_REPLY_STRING || reply->len >= plain.length || memcmp(reply->str, "\xba\x1e", 2)) fail("not packed", reply->str);
  freeReplyObject(reply);
}

static void is_status(redisReply *reply, const char *want) {
  if (reply->type != REDIS_REPLY_STATUS || strcmp(reply->str, want)) fail(want, reply->str);
  freeReplyObject(reply);
}

static void is_nil(redisReply *reply) {
  if (reply->type != REDIS_REPLY_NIL) fail("not nil", reply->str);
  freeReplyObject(reply);
}

static void is_number(redisReply *reply, long long want) {
  if (reply->type != REDIS_REPLY_INTEGER || reply->integer != want) fail("not the number", reply->str);
  freeReplyObject(reply);
}

static void has(redisReply *reply, value_t want) {
  is(reply, want);
  freeReplyObject(reply);
}

#define DO(c, ...) ((redisReply *)redisCommand(c, __VA_ARGS__))
#define BYTES(v) (v).bytes, (v).length

static void strings(void) {
  is_status(DO(r, "SET %sa %b EX 1000", prefix, BYTES(value(1))), "OK");
  is_packed(DO(past, "GET %sa", prefix), value(1));
  has(DO(r, "GET %sa", prefix), value(1));
  has(DO(r, "GETSET %sa %b", prefix, BYTES(value(2))), value(1));
  has(DO(r, "SET %sa %b GET", prefix, BYTES(value(3))), value(2));
  is_status(DO(r, "MSET %sa %b %sb %b other:%s %b", prefix, BYTES(value(4)), prefix, BYTES(value(5)), prefix, BYTES(value(6))), "OK");
  is_packed(DO(past, "GET %sb", prefix), value(5));
  has(DO(past, "GET other:%s", prefix), value(6));
  redisReply *many = DO(r, "MGET %sb %snone other:%s %sa", prefix, prefix, prefix, prefix);
  if (many->type != REDIS_REPLY_ARRAY || many->elements != 4 || many->element[1]->type != REDIS_REPLY_NIL) fail("MGET", many->str);
  is(many->element[0], value(5));
  is(many->element[2], value(6));
  is(many->element[3], value(4));
  freeReplyObject(many);
  is_number(DO(r, "SETNX %sa %b", prefix, BYTES(value(7))), 0);
  has(DO(r, "GETDEL %sb", prefix), value(5));
  is_nil(DO(r, "GET %sb", prefix));
  is_status(DO(r, "SET %sb 41", prefix), "OK");
  is_number(DO(r, "INCR %sb", prefix), 42);
}

static void hashes(void) {
  is_number(DO(r, "HSET %sh f %b n 1", prefix, BYTES(value(1))), 2);
  is_packed(DO(past, "HGET %sh f", prefix), value(1));
  has(DO(r, "HGET %sh f", prefix), value(1));
  is_number(DO(r, "HINCRBY %sh n 2", prefix), 3);
  redisReply *all = DO(r, "HGETALL %sh", prefix);
  if (all->type != REDIS_REPLY_ARRAY || all->elements != 4) fail("HGETALL", all->str);
  for (size_t i = 0; i < 4; i += 2)
    is(all->element[i + 1], strcmp(all->element[i]->str, "f") ? (value_t){"3", 1} : value(1));
  freeReplyObject(all);
}

static void pipeline(void) {
  for (int i = 0; i < 200; i++) {
    redisAppendCommand(r, "SET %sp%d %b", prefix, i, BYTES(value(i)));
    redisAppendCommand(r, "GET %sp%d", prefix, i);
  }
  for (int i = 0; i < 200; i++) {
    is_status(next(r), "OK");
    has(next(r), value(i));
    is_packed(DO(past, "GET %sp%d", prefix, i), value(i));
  }
}

static void transaction(void) {
  is_status(DO(r, "MULTI"), "OK");
  is_status(DO(r, "SET %st %b", prefix, BYTES(value(1))), "QUEUED");
  is_status(DO(r, "GET %st", prefix), "QUEUED");
  redisReply *all = DO(r, "EXEC");
  if (all->type != REDIS_REPLY_ARRAY || all->elements != 2) fail("EXEC", all->str);
  is(all->element[1], value(1));
  freeReplyObject(all);
  is_packed(DO(past, "GET %st", prefix), value(1));
}

static void watch(void) {
  is_status(DO(r, "WATCH %st", prefix), "OK");
  is_status(DO(past, "SET %st changed", prefix), "OK");
  is_status(DO(r, "MULTI"), "OK");
  is_status(DO(r, "SET %st %b", prefix, BYTES(value(2))), "QUEUED");
  is_nil(DO(r, "EXEC"));
  has(DO(r, "GET %st", prefix), (value_t){"changed", 7});
}

static void blocking(redisContext *second) {
  int done;
  redisAppendCommand(second, "BLPOP %sl 30", prefix);
  do {
    if (redisBufferWrite(second, &done) != REDIS_OK) fail("the connection", second->errstr);
  } while (!done);
  usleep(50000);
  is_number(DO(r, "RPUSH %sl %b", prefix, BYTES(value(1))), 1);
  redisReply *popped = next(second);
  if (popped->type != REDIS_REPLY_ARRAY || popped->elements != 2) fail("BLPOP", popped->str);
  is(popped->element[1], value(1));
  freeReplyObject(popped);
  is_nil(DO(second, "BLPOP %sl 0.05", prefix));
}

static void pubsub(redisContext *second) {
  redisReply *reply = DO(second, "SUBSCRIBE %sch", prefix);
  if (reply->type != REDIS_REPLY_ARRAY || strcmp(reply->element[0]->str, "subscribe")) fail("SUBSCRIBE", reply->str);
  freeReplyObject(reply);
  is_number(DO(r, "PUBLISH %sch %b", prefix, BYTES(value(1))), 1);
  reply = next(second);
  if (reply->type != REDIS_REPLY_ARRAY || strcmp(reply->element[0]->str, "message")) fail("a message", reply->str);
  is(reply->element[2], value(1));
  freeReplyObject(reply);
  freeReplyObject(DO(second, "UNSUBSCRIBE"));
  has(DO(second, "GET %sp1", prefix), value(1));
}

static void binary(void) {
  char all[1024];
  for (size_t i = 0; i < sizeof all; i++) all[i] = (char)i;
  redisReply *frame = DO(past, "GET %sp0", prefix); /* which a user could upload */
  value_t values[] = {{"", 0}, {"\0", 1}, {all, sizeof all}, {"\xba\x1e", 2}, {frame->str, frame->len}};
  for (int i = 0; i < 5; i++) {
    is_status(DO(r, "SET %sbin%d %b", prefix, i, BYTES(values[i])), "OK");
    has(DO(r, "GET %sbin%d", prefix, i), values[i]);
  }
  freeReplyObject(frame);
}

static void big(void) {
  size_t n = strlen(text);
  value_t v = {malloc(8 << 20), (8 << 20) / n * n};
  for (size_t i = 0; i < v.length; i++) v.bytes[i] = text[i % n];
  is_status(DO(r, "SET %sbig %b", prefix, BYTES(v)), "OK");
  has(DO(r, "GET %sbig", prefix), v);
  v.length /= 10;
  is_packed(DO(past, "GET %sbig", prefix), v);
}

static void refused(void) {
  const char *commands[] = {"APPEND", "STRLEN"};
  for (int i = 0; i < 2; i++) {
    char want[64];
    snprintf(want, sizeof want, "BALE %s on a key in scope: ", commands[i]);
    redisReply *reply = i ? DO(r, "STRLEN %sa", prefix) : DO(r, "APPEND %sa x", prefix);
    if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, want, strlen(want))) fail(want, reply->str);
    freeReplyObject(reply);
  }
  has(DO(r, "GET %sa", prefix), value(4));
  is_number(DO(r, "APPEND other:%s x", prefix), (long long)value(6).length + 1);
}

#define RUN(check, ...) check(__VA_ARGS__), puts(#check), fflush(stdout)

int main(int argc, char **argv) {
  if (argc != 5) fail("usage", "hiredis PROXY REDIS 2 PREFIX");
  prefix = argv[4];
  text = getenv("BALE_VALUE");
  r = dial(argv[1]);
  past = dial(argv[2]);
  redisContext *second = dial(argv[1]);
  RUN(strings);
  RUN(hashes);
  RUN(pipeline);
  RUN(transaction);
  RUN(watch);
  RUN(blocking, second);
  RUN(pubsub, second);
  RUN(binary);
  RUN(big);
  RUN(refused);
  redisFree(r), redisFree(past), redisFree(second);
}
