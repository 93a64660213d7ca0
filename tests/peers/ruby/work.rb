# Does one program of real work through Dalli: work.rb HOST PORT. Prints the Test Anything Protocol.

require "dalli"
require "digest"

MEBIBYTE = 1 << 20
SEED = Integer(ENV.fetch("VERACACHE_SEED", "20"))
HOST, PORT = ARGV

Dalli.logger.level = Logger::ERROR

def make(**options)
  Dalli::Client.new("#{HOST}:#{PORT}", { compress: false, socket_timeout: 10 }.merge(options))
end

# Bytes that follow from a name.
def bytes(name, length)
  Random.new(Digest::SHA256.hexdigest("#{SEED}/#{name}")[0, 15].to_i(16)).bytes(length)
end

def check(condition, what = nil)
  raise "wrong: #{what}" unless condition
end

def same(got, wanted, what = nil)
  raise "#{what}: got #{got.inspect[0, 80]}, wanted #{wanted.inspect[0, 80]}" unless got == wanted
end

def until_gone(client, key)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 4
  until client.get(key).nil?
    check(Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline, "#{key} does not expire")
    sleep 0.05
  end
end

# Where the server refuses, some of Dalli's methods answer false, some nil, and replace the CAS 0.
def refused?(answer)
  !answer || answer == 0
end

RAW = { raw: true }.freeze

TESTS = {
  "values of many sizes" => lambda do |client|
    sizes = [0, 1, 2, 30, 100, 1000, 1023, 1024, 1025, 4096, 16_384, 65_535, 65_536, 250_000, 524_288, MEBIBYTE - 600]
    sizes.each { |size| check(client.set("size-#{size}", bytes("size-#{size}", size), 0, RAW), size) }
    sizes.each { |size| same(client.get("size-#{size}"), bytes("size-#{size}", size), size) }
  end,
  "keys of many lengths" => lambda do |client|
    keys = [1, 2, 7, 8, 9, 63, 64, 100, 249, 250].map { |length| "k" * length }
    keys.each { |key| check(client.set(key, key)) }
    keys.each { |key| same(client.get(key), key, key.size) }
  end,
  "objects and their flags" => lambda do |client|
    [0, -1, 12_345_678_901_234_567_890, "text", "ünïcödé ✓", 1.5, [1, "two", nil], { a: [1, 2] }, true, :symbol].each do |value|
      check(client.set("object", value))
      same(client.get("object"), value)
    end
    compressing = make(compress: true, compression_min_size: 100)
    check(compressing.set("compressed", "long " * 10_000))
    same(client.get("compressed"), "long " * 10_000)
  end,
  "add and replace" => lambda do |client|
    check(refused?(client.replace("conditional", "none")))
    same(client.get("conditional"), nil)
    check(client.add("conditional", "first"))
    check(refused?(client.add("conditional", "second")))
    same(client.get("conditional"), "first")
    check(client.replace("conditional", "third"))
    same(client.get("conditional"), "third")
  end,
  "delete" => lambda do |client|
    check(!client.delete("never-set"))
    check(client.set("gone", "x"))
    check(client.delete("gone"))
    same(client.get("gone"), nil)
  end,
  "append and prepend" => lambda do |client|
    check(refused?(client.append("joined", "x")))
    check(refused?(client.prepend("joined", "x")))
    check(client.set("joined", "middle", 0, RAW))
    check(client.append("joined", " end"))
    check(client.prepend("joined", "start "))
    same(client.get("joined"), "start middle end")
  end,
  "compare and swap" => lambda do |client|
    same(client.cas("swap") { raise "called for a key that is not there" }, nil)
    check(client.set("swap", "one"))
    check(client.cas("swap") { |value| same(value, "one") || "two" })
    same(client.get("swap"), "two")
    refused = client.cas("swap") do |_|
      make.set("swap", "by another")
      "three"
    end
    same(refused, false)
    same(client.get("swap"), "by another")
  end,
  "counters" => lambda do |client|
    same(client.incr("no-counter"), nil)
    same(client.incr("counter", 5, 0, 10), 10)
    same(client.incr("counter", 5), 15)
    same(client.decr("counter", 1), 14)
    same(client.decr("counter", 100), 0)
    check(client.set("counter", "18446744073709551615", 0, RAW))
    same(client.incr("counter", 2), 1)
    check(client.set("counter", "not a number", 0, RAW))
    refused = begin
      client.incr("counter")
      false
    rescue Dalli::DalliError
      true
    end
    check(refused, "a counter that is no number")
  end,
  "expiry, touch, get and touch" => lambda do |client|
    check(client.set("short", "x", 1))
    check(client.set("long", "y", 1000))
    check(client.set("touched", "z", 1))
    check(client.touch("touched", 1000))
    check(client.set("fetched", "w", 1))
    same(client.gat("fetched", 1000), "w")
    same(client.gat("never-set", 1000), nil)
    check(!client.touch("never-set", 10))
    until_gone(client, "short")
    sleep 1
    same(client.get("long"), "y")
    same(client.get("touched"), "z")
    same(client.get("fetched"), "w")
  end,
  "many at once" => lambda do |client|
    values = (0...500).to_h { |n| ["multi-#{n}", bytes("multi-#{n}", n * 13 % 3000)] }
    client.multi { values.each { |key, value| client.set(key, value, 0, RAW) } }
    same(client.get_multi(values.keys + (0...200).map { |n| "absent-#{n}" }), values)
    client.multi { (0...250).each { |n| client.delete("multi-#{n}") } }
    same(client.get_multi(values.keys).size, 250)
  end,
  "a value that is too large" => lambda do |client|
    check(client.set("large", "small"))
    lax = make(value_max_bytes: 10 * MEBIBYTE)
    begin
      check(!lax.set("large", bytes("large", MEBIBYTE + 10), 0, RAW), "stored")
    rescue Dalli::DalliError
      nil
    end
    same(client.get("large"), nil)
    check(client.set("large", "small again"))
  end,
  "several connections at once" => lambda do |client|
    client.set("shared", "0", 0, RAW)
    threads = (0...8).map do |number|
      Thread.new do
        mine = make
        200.times do |turn|
          value = bytes("#{number}-#{turn}", turn * 31 % 4000)
          check(mine.set("mine-#{number}", value, 0, RAW))
          same(mine.get("mine-#{number}"), value, turn)
          check(mine.incr("shared"))
        end
        mine.close
      end
    end
    threads.each(&:join)
    same(client.incr("shared"), 8 * 200 + 1)
  end,
  "version and stats" => lambda do |client|
    check(client.version.values.first.match?(/\A\d+\.\d+\.\d+/))
    stats = client.stats.values.first
    check(Integer(stats.fetch("cmd_set")) > 1000)
    check(Integer(stats.fetch("curr_items")) > 100)
    check(client.alive!)
  end,
  "flush" => lambda do |client|
    check(client.set("flushed", "x"))
    check(client.flush.all?)
    same(client.get("flushed"), nil)
  end,
}.freeze

puts "# seed #{SEED}", "1..#{TESTS.size}"
failed = false
TESTS.each.with_index(1) do |(name, test), number|
  client = make
  begin
    test.call(client)
    puts "ok #{number} - #{name}"
  rescue StandardError => e
    failed = true
    puts "not ok #{number} - #{name}: #{e.class} #{e.message.inspect[0, 200]} at #{e.backtrace.grep(/work.rb/).first}"
  ensure
    client.close
  end
end
exit(!failed)
