//! The crate's established client, text or binary by the address it is given.

use std::collections::HashMap;

use memcache::Client;

use crate::{MEBIBYTE, Outcome, SIZES, bytes, check, until};

type Test = fn(&str, &Client) -> Outcome;

const TESTS: &[(&str, Test)] = &[
    ("values of many sizes", sizes),
    ("flags", flags),
    ("add, replace and delete", conditions),
    ("append and prepend", joining),
    ("compare and swap", swap),
    ("counters", counters),
    ("expiry and touch", expiry),
    ("many at once", many),
    ("a value that is too large", large),
    ("several connections at once", connections),
    ("version, stats and flush", flush),
];

/// Runs every test with a client of its own.
pub fn run(address: &str) -> Vec<(&'static str, Outcome)> {
    TESTS
        .iter()
        .map(|(name, test)| {
            (*name, memcache::connect(address).map_err(Into::into).and_then(|client| test(address, &client)))
        })
        .collect()
}

fn sizes(_: &str, client: &Client) -> Outcome {
    client.set("size-0", &b""[..], 0)?;
    for size in SIZES {
        client.set(&format!("size-{size}"), &bytes(*size, *size)[..], 0)?;
    }
    check(client.get::<Vec<u8>>("size-0")? == Some(Vec::new()), "the empty value")?;
    for size in SIZES {
        check(
            client.get::<Vec<u8>>(&format!("size-{size}"))? == Some(bytes(*size, *size)),
            &format!("{size} bytes"),
        )?;
    }
    for length in [1, 2, 7, 8, 9, 63, 64, 100, 249, 250] {
        let key = "k".repeat(length);
        client.set(&key, key.as_str(), 0)?;
        check(client.get::<String>(&key)? == Some(key), &format!("a key of {length} bytes"))?;
    }
    Ok(())
}

fn flags(_: &str, client: &Client) -> Outcome {
    client.set("flags", "text", 0)?;
    let (text, text_flags, _): (Vec<u8>, u32, Option<u64>) = client.get("flags")?.ok_or("not there")?;
    check(text == b"text", "the value")?;
    client.set("flags", 12345, 0)?;
    let (number, number_flags, _): (Vec<u8>, u32, Option<u64>) = client.get("flags")?.ok_or("not there")?;
    check(number == b"12345", "the number")?;
    check(text_flags == 0, "the flags of a text")?;
    check(number_flags == 0 || number_flags != text_flags, "the flags of a number")
}

fn conditions(_: &str, client: &Client) -> Outcome {
    // Over text the crate takes NOT_STORED for success: what counts is what is there afterwards.
    let _ = client.replace("conditional", "none", 0);
    check(client.get::<String>("conditional")?.is_none(), "replaced nothing")?;
    client.add("conditional", "first", 0)?;
    let _ = client.add("conditional", "second", 0);
    check(client.get("conditional")? == Some("first".to_string()), "what was added")?;
    client.replace("conditional", "third", 0)?;
    check(client.get("conditional")? == Some("third".to_string()), "what was replaced")?;
    check(client.delete("conditional")?, "delete")?;
    check(!client.delete("conditional")?, "deleted twice")?;
    check(client.get::<String>("conditional")?.is_none(), "still there")
}

fn joining(_: &str, client: &Client) -> Outcome {
    // As above, the answer itself is lost over text.
    let _ = client.append("joined", "x");
    check(client.get::<String>("joined")?.is_none(), "appended to nothing")?;
    client.set("joined", "middle", 0)?;
    client.append("joined", " end")?;
    client.prepend("joined", "start ")?;
    check(client.get("joined")? == Some("start middle end".to_string()), "the whole")
}

fn swap(_: &str, client: &Client) -> Outcome {
    client.set("swap", "one", 0)?;
    let found = client.gets::<(Vec<u8>, u32, Option<u64>)>(&["swap"])?;
    let (value, _, token) = found.get("swap").ok_or("not there")?;
    let token = token.ok_or("no token")?;
    check(value == b"one", "the first value")?;
    check(client.cas("swap", "two", 0, token)?, "swap")?;
    check(!client.cas("swap", "three", 0, token)?, "swapped twice")?;
    check(client.get("swap")? == Some("two".to_string()), "the second value")
}

fn counters(address: &str, client: &Client) -> Outcome {
    if address.contains("ascii") {
        check(client.increment("no-counter", 1).is_err(), "counted from nothing")?;
    } else {
        // Over binary the crate asks for a counter that begins at nought.
        check(client.increment("no-counter", 1)? == 0, "began a counter")?;
        check(client.increment("no-counter", 1)? == 1, "counted")?;
    }
    client.set("counter", 40, 0)?;
    check(client.increment("counter", 2)? == 42, "42")?;
    check(client.decrement("counter", 1)? == 41, "41")?;
    check(client.decrement("counter", 100)? == 0, "the floor")?;
    client.set("counter", "18446744073709551615", 0)?;
    check(client.increment("counter", 2)? == 1, "past the largest number")?;
    client.set("counter", "text", 0)?;
    check(client.increment("counter", 1).is_err(), "counted a text")
}

fn expiry(_: &str, client: &Client) -> Outcome {
    client.set("short", "x", 1)?;
    client.set("long", "y", 1000)?;
    client.set("touched", "z", 1)?;
    check(client.touch("touched", 1000)?, "touch")?;
    check(!client.touch("never-set", 1000)?, "touched nothing")?;
    until(|| Ok(client.get::<String>("short")?.is_none()))?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    check(client.get("long")? == Some("y".to_string()), "long")?;
    check(client.get("touched")? == Some("z".to_string()), "touched")
}

fn many(_: &str, client: &Client) -> Outcome {
    let keys: Vec<String> = (0..700).map(|n| format!("multi-{n}")).collect();
    for (n, key) in keys.iter().enumerate().take(500) {
        client.set(key, &bytes(n, n * 13 % 3000 + 1)[..], 0)?;
    }
    let wanted: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found: HashMap<String, Vec<u8>> = client.gets(&wanted)?;
    check(found.len() == 500, "as many as were set")?;
    for (n, key) in keys.iter().enumerate().take(500) {
        check(found.get(key) == Some(&bytes(n, n * 13 % 3000 + 1)), key)?;
    }
    Ok(())
}

fn large(_: &str, client: &Client) -> Outcome {
    client.set("large", "small", 0)?;
    check(client.set("large", &bytes(1, MEBIBYTE + 10)[..], 0).is_err(), "stored")?;
    check(client.get::<String>("large")?.is_none(), "the old value is still there")?;
    client.set("large", "small again", 0)?;
    check(client.get("large")? == Some("small again".to_string()), "the next value")
}

fn connections(address: &str, client: &Client) -> Outcome {
    client.set("shared", 0, 0)?;
    let work = |number: usize| -> Result<(), String> {
        let mine = memcache::connect(address).map_err(|error| error.to_string())?;
        let key = format!("mine-{number}");
        for turn in 0..200 {
            let value = bytes(number * 1000 + turn, turn * 31 % 4000 + 1);
            mine.set(&key, &value[..], 0).map_err(|error| error.to_string())?;
            if mine.get::<Vec<u8>>(&key).map_err(|error| error.to_string())? != Some(value) {
                return Err(format!("{key} in turn {turn}"));
            }
            mine.increment("shared", 1).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || work(number))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    check(client.increment("shared", 1)? == 8 * 200 + 1, "the counter they share")
}

fn flush(address: &str, client: &Client) -> Outcome {
    let versions = client.version()?;
    check(versions.iter().all(|(_, version)| version.split('.').count() >= 3), "the version")?;
    // Over text the crate stops reading after the first line of the statistics.
    if !address.contains("ascii") {
        for (_, stats) in client.stats()? {
            let items: usize = stats.get("curr_items").ok_or("no curr_items")?.parse()?;
            check(items > 500, "curr_items")?;
        }
    }
    client.set("flushed", "x", 0)?;
    client.flush()?;
    check(client.get::<String>("flushed")?.is_none(), "still there")
}
