//! `tests/peers/memcached-t.toml`: which files are run, where they differ, and which are left out.

use toml::{Table, Value};

/// The whole file.
#[derive(Debug)]
pub(super) struct List {
    pub(super) source: Source,
    pub(super) run: Vec<Run>,
    pub(super) omit: Vec<Omit>,
}

/// The archive that the tests are taken from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) package: String,
    pub(super) archive: String,
    pub(super) sha256: String,
    pub(super) folder: String,
}

/// A file that is run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) file: String,
    /// Whether it moves the server's clock, which Debian's build of memcached cannot.
    pub(super) needs_debugtime: bool,
    /// Tests that may leave themselves out.
    pub(super) may_skip: Vec<usize>,
    pub(super) differences: Vec<Difference>,
}

/// A test that must fail, because memcached 1.6.45 does not do what 1.6.18's test wants.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) test: usize,
    pub(super) name: String,
    pub(super) because: String,
}

/// Files that are not run, for a reason that stands in the list.
#[derive(Debug)]
pub(super) struct Omit {
    pub(super) files: Vec<String>,
}

impl List {
    /// Reads the list. A key that nobody knows is an error, for it is a misspelling.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut root: Table = text.parse().map_err(|error| format!("{error}"))?;
        let mut source = Entry::new(root.remove("source").unwrap_or(Value::Boolean(false)))?;
        let list = List {
            source: Source {
                package: source.text("package")?,
                archive: source.text("archive")?,
                sha256: source.text("sha256")?,
                folder: source.text("folder")?,
            },
            run: entries(root.remove("run"))?.into_iter().map(run).collect::<Result<_, _>>()?,
            omit: entries(root.remove("omit"))?.into_iter().map(omit).collect::<Result<_, _>>()?,
        };
        source.end()?;
        Entry(root).end()?;
        Ok(list)
    }
}

fn run(mut entry: Entry) -> Result<Run, String> {
    let differences =
        entries(entry.0.remove("difference"))?.into_iter().map(difference).collect::<Result<_, _>>()?;
    let needs_debugtime = entry.0.remove("needs_debugtime") == Some(Value::Boolean(true));
    let may_skip = match entry.0.remove("may_skip") {
        None => Vec::new(),
        Some(Value::Array(numbers)) => numbers.iter().map(test_number).collect::<Result<_, _>>()?,
        Some(_) => return Err("may_skip is not a list".into()),
    };
    let run = Run { file: entry.text("file")?, needs_debugtime, may_skip, differences };
    entry.end()?;
    Ok(run)
}

fn difference(mut entry: Entry) -> Result<Difference, String> {
    let test = test_number(&entry.0.remove("test").ok_or("test is missing")?)?;
    let difference = Difference { test, name: entry.text("name")?, because: entry.text("because")? };
    entry.end()?;
    Ok(difference)
}

fn test_number(value: &Value) -> Result<usize, String> {
    let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| format!("{value:?} is not the number of a test"))
}

fn omit(mut entry: Entry) -> Result<Omit, String> {
    if entry.text("because")?.is_empty() {
        return Err("files are left out without a reason".into());
    }
    let Some(Value::Array(files)) = entry.0.remove("files") else { return Err("files is not a list".into()) };
    let files = files.iter().filter_map(|file| file.as_str().map(String::from)).collect();
    entry.end()?;
    Ok(Omit { files })
}

fn entries(value: Option<Value>) -> Result<Vec<Entry>, String> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => values.into_iter().map(Entry::new).collect(),
        Some(_) => Err("a list of tables was expected".into()),
    }
}

/// A table whose keys are taken out one by one.
struct Entry(Table);

impl Entry {
    fn new(value: Value) -> Result<Self, String> {
        match value {
            Value::Table(table) => Ok(Entry(table)),
            _ => Err("a table was expected".into()),
        }
    }

    fn text(&mut self, key: &str) -> Result<String, String> {
        match self.0.remove(key) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(format!("{key} is missing or not a text")),
        }
    }

    fn end(&self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("nobody knows the key {key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "[source]\npackage = 'p'\narchive = 'a'\nsha256 = '0'\nfolder = 'f'\n";

    fn check(rest: &str, wanted: Result<(usize, usize), &str>) {
        let list = List::parse(&format!("{SOURCE}{rest}"));
        let got = list.as_ref().map(|list| (list.run.len(), list.omit.len())).map_err(String::as_str);
        assert_eq!(got, wanted);
    }

    #[test]
    fn lists_are_read() {
        check("", Ok((0, 0)));
        check("[[run]]\nfile = 'cas'\n[[run.difference]]\ntest = 1\nname = 'n'\nbecause = 'b'\n", Ok((1, 0)));
        check("[[omit]]\nfiles = ['udp']\nbecause = 'no UDP'\n", Ok((0, 1)));
    }

    #[test]
    fn mistakes_are_named() {
        check("[[run]]\nfile = 'cas'\nslow = true\n", Err("nobody knows the key slow"));
        check("[[omit]]\nfiles = ['udp']\nbecause = ''\n", Err("files are left out without a reason"));
        check(
            "[[run]]\nfile = 'cas'\n[[run.difference]]\ntest = 1\nname = 'n'\n",
            Err("because is missing or not a text"),
        );
    }
}
