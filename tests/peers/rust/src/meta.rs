//! The crate's newer client, which speaks meta commands alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use memcache::exp::{Memcache, Ttl};

use crate::{MEBIBYTE, Outcome, SIZES, bytes, check, until};

type Test = fn(&Memcache) -> Outcome;

const TESTS: &[(&str, Test)] = &[
    ("values of many sizes", sizes),
    ("add, replace and delete", conditions),
    ("expiry, touch, get and touch", expiry),
    ("many at once", many),
    ("a value that is too large", large),
    ("one of many computes", computing),
    ("a stale value is kept while one recomputes", stale),
    ("several connections at once", connections),
];

/// Runs every test with a client of its own.
pub fn run(address: &str) -> Vec<(&'static str, Outcome)> {
    TESTS
        .iter()
        .map(|(name, test)| {
            (*name, Memcache::connect([address]).map_err(Into::into).and_then(|client| test(&client)))
        })
        .collect()
}

fn sizes(client: &Memcache) -> Outcome {
    for size in SIZES {
        client.set(format!("size-{size}"), &bytes(*size, *size)[..], Ttl::NEVER)?;
    }
    for size in SIZES {
        check(
            client.get::<Vec<u8>>(format!("size-{size}"))? == Some(bytes(*size, *size)),
            &format!("{size} bytes"),
        )?;
    }
    // Keys that hold blanks or bytes that are no text travel in base64.
    for key in [&b"with blank"[..], b"\r\n", b"\0\xff", &[b'k'; 180]] {
        client.set(key, key, Ttl::NEVER)?;
        check(client.get::<Vec<u8>>(key)?.as_deref() == Some(key), "an awkward key")?;
    }
    Ok(())
}

fn conditions(client: &Memcache) -> Outcome {
    check(!client.replace("conditional", "none", Ttl::NEVER)?, "replaced nothing")?;
    check(client.add("conditional", "first", Ttl::NEVER)?, "add")?;
    check(!client.add("conditional", "second", Ttl::NEVER)?, "added twice")?;
    check(client.get::<String>("conditional")?.as_deref() == Some("first"), "what was added")?;
    check(client.replace("conditional", "third", Ttl::NEVER)?, "replace")?;
    check(client.get::<String>("conditional")?.as_deref() == Some("third"), "what was replaced")?;
    client.delete("conditional")?;
    check(client.get::<String>("conditional")?.is_none(), "still there")
}

fn expiry(client: &Memcache) -> Outcome {
    client.set("short", "x", Ttl::secs(1))?;
    client.set("long", "y", Ttl::secs(1000))?;
    client.set("touched", "z", Ttl::secs(1))?;
    client.touch("touched", Ttl::secs(1000))?;
    client.set("fetched", "w", Ttl::secs(1))?;
    check(
        client.get_and_touch::<String>("fetched", Ttl::secs(1000))?.as_deref() == Some("w"),
        "get and touch",
    )?;
    until(|| Ok(client.get::<String>("short")?.is_none()))?;
    std::thread::sleep(Duration::from_secs(1));
    for (key, value) in [("long", "y"), ("touched", "z"), ("fetched", "w")] {
        check(client.get::<String>(key)?.as_deref() == Some(value), key)?;
    }
    Ok(())
}

fn many(client: &Memcache) -> Outcome {
    let keys: Vec<String> = (0..700).map(|n| format!("multi-{n}")).collect();
    let values: Vec<Vec<u8>> = (0..500).map(|n| bytes(n, n * 13 % 3000 + 1)).collect();
    client.set_many(keys.iter().zip(values.iter().map(Vec::as_slice)), Ttl::NEVER)?;
    let found = client.get_many::<Vec<u8>, _>(&keys)?;
    check(found.len() == 500, "as many as were set")?;
    for (key, value) in keys.iter().zip(&values) {
        check(found.get(key) == Some(value), key)?;
    }
    client.delete_many(&keys)?;
    check(client.get_many::<Vec<u8>, _>(&keys)?.is_empty(), "none after the delete")
}

fn large(client: &Memcache) -> Outcome {
    client.set("large", "small", Ttl::NEVER)?;
    check(client.set("large", &bytes(1, MEBIBYTE + 10)[..], Ttl::NEVER).is_err(), "stored")?;
    check(client.get::<String>("large")?.is_none(), "the old value is still there")?;
    client.set("large", "small again", Ttl::NEVER)?;
    check(client.get::<String>("large")?.as_deref() == Some("small again"), "the next value")
}

fn computing(client: &Memcache) -> Outcome {
    let computed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let fetch = || {
            client.fetch("computed", Ttl::secs(100), || {
                computed.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>("the answer".to_string())
            })
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(fetch)).collect();
        for thread in threads {
            let value = thread.join().map_err(|_| "a thread panicked")??;
            check(value == "the answer", "the value")?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    check(computed.load(Ordering::Relaxed) == 1, "computed once")?;
    check(client.get::<String>("computed")?.as_deref() == Some("the answer"), "what was kept")
}

fn stale(client: &Memcache) -> Outcome {
    client.set("stale", "old", Ttl::secs(1000))?;
    client.invalidate("stale", Duration::from_secs(30))?;
    check(client.get::<String>("stale")?.as_deref() == Some("old"), "the stale value")?;
    let value: String =
        client.fetch("stale", Ttl::secs(1000), || Ok::<_, std::io::Error>("new".to_string()))?;
    check(value == "new" || value == "old", "what the one who recomputes is given")?;
    until(|| Ok(client.get::<String>("stale")?.as_deref() == Some("new")))
}

fn connections(client: &Memcache) -> Outcome {
    let work = |number: usize| -> Result<(), String> {
        let key = format!("mine-{number}");
        for turn in 0..200 {
            let value = bytes(number * 1000 + turn, turn * 31 % 4000 + 1);
            client.set(&key, &value[..], Ttl::NEVER).map_err(|error| error.to_string())?;
            if client.get::<Vec<u8>>(&key).map_err(|error| error.to_string())? != Some(value) {
                return Err(format!("{key} in turn {turn}"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || work(number))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    Ok(())
}
