//! Which processors share what, as far as the system tells, and how independent a second execution is of the first.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use guard::Core;

/// CPUs that are looked at; what a mask of the system holds. Further ones are not used.
pub(crate) const CPUS_MAX: u16 = 1024;

/// Where the CPUs of this machine sit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    places: Vec<Place>,
    /// A virtual machine: what it says of its CPUs need not be true of the processor.
    is_virtual: bool,
}

/// One CPU, as the system numbers them: a hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    cpu: Core,
    package: u32,
    /// Unique within the package.
    core: u32,
    /// The CPUs that share its execution units, itself included, in order.
    siblings: Vec<Core>,
}

/// How independent the CPUs that validate are of those that execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Independence {
    /// Nothing validates.
    None,
    /// A validator may run on the very CPU that executed.
    Shared,
    /// A validator runs on another thread of the same physical core, with the same execution units.
    Sibling,
    /// The CPUs differ, and what that means the system doesn't tell.
    Unknown,
    /// Validators have physical cores of their own.
    OwnCore,
}

/// Who may run where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) workers: Vec<Core>,
    pub(crate) validators: Vec<Core>,
}

impl Topology {
    /// What the system says of the CPUs that this process may use. What can't be read stays unknown.
    pub(crate) fn read(allowed: &[Core]) -> Self {
        let root = Path::new("/sys/devices/system/cpu");
        let place = |&cpu: &Core| {
            let read = |name: &str| {
                fs::read_to_string(root.join(format!("cpu{}/topology/{name}", cpu.0))).unwrap_or_default()
            };
            Place::parse(cpu, &read("physical_package_id"), &read("core_id"), &read("thread_siblings_list"))
        };
        let places = allowed.iter().filter_map(place).collect();
        Topology { places, is_virtual: is_virtual(&cpuinfo()) }
    }

    /// The CPUs that share execution units with this one, itself included. Alone, if that isn't known for sure.
    pub(crate) fn siblings(&self, cpu: Core) -> Vec<Core> {
        match self.place(cpu) {
            Some(place) if !self.is_virtual => place.siblings.clone(),
            _ => vec![cpu],
        }
    }

    /// The processor a CPU is part of, if that is known for sure.
    pub(crate) fn package(&self, cpu: Core) -> Option<u32> {
        self.place(cpu).filter(|_| !self.is_virtual).map(|place| place.package)
    }

    /// How independent validators on some CPUs are of workers on others: that of the worst pair.
    pub(crate) fn independence(&self, workers: &[Core], validators: &[Core]) -> Independence {
        let pairs = workers.iter().flat_map(|worker| validators.iter().map(move |other| (*worker, *other)));
        pairs.map(|(worker, validator)| self.of_pair(worker, validator)).min().unwrap_or(Independence::None)
    }

    fn of_pair(&self, worker: Core, validator: Core) -> Independence {
        if worker == validator {
            return Independence::Shared;
        }
        match (self.place(worker), self.place(validator)) {
            (Some(one), Some(_)) if !self.is_virtual => {
                if one.siblings.contains(&validator) {
                    Independence::Sibling
                } else {
                    Independence::OwnCore
                }
            }
            _ => Independence::Unknown,
        }
    }

    /// Divides CPUs among workers and validators, so that validators get physical cores of their own if then each worker
    /// still has a CPU, else hardware threads of their own; the last ones. Nothing if there are not enough even for that:
    /// then it is better to leave it to the system who runs where.
    pub(crate) fn divide(&self, cpus: &[Core], workers: usize, validators: usize) -> Option<Division> {
        let cpus: BTreeSet<Core> = cpus.iter().copied().collect();
        if validators == 0 || cpus.len() < workers + validators {
            return None;
        }
        let mut groups: Vec<Vec<Core>> = Vec::new();
        for &cpu in &cpus {
            if !groups.iter().any(|group| group.contains(&cpu)) {
                groups
                    .push(self.siblings_claimed(cpu).into_iter().filter(|cpu| cpus.contains(cpu)).collect());
            }
        }
        let mut own: Vec<Core> = Vec::new();
        while own.len() < validators {
            own.extend(groups.pop()?);
        }
        let mut rest: Vec<Core> = groups.concat();
        if rest.len() < workers {
            rest = cpus.into_iter().collect();
            own = rest.split_off(rest.len() - validators);
        }
        rest.sort();
        own.sort();
        Some(Division { workers: rest, validators: own })
    }

    /// The siblings by what the system says, true or not: where it is wrong, nothing is lost.
    pub(crate) fn siblings_claimed(&self, cpu: Core) -> Vec<Core> {
        self.place(cpu).map_or_else(|| vec![cpu], |place| place.siblings.clone())
    }

    /// A real machine with these physical cores, all in one processor.
    #[cfg(test)]
    pub(crate) fn of_cores(cores: &[&[u16]]) -> Self {
        let mut places = Vec::new();
        for (core, threads) in (0..).zip(cores) {
            let siblings: Vec<Core> = threads.iter().copied().map(Core).collect();
            places.extend(siblings.iter().map(|&cpu| Place {
                cpu,
                package: 0,
                core,
                siblings: siblings.clone(),
            }));
        }
        Topology { places, is_virtual: false }
    }

    fn place(&self, cpu: Core) -> Option<&Place> {
        self.places.iter().find(|place| place.cpu == cpu)
    }
}

impl Place {
    /// From the texts of `physical_package_id`, `core_id` and `thread_siblings_list`.
    fn parse(cpu: Core, package: &str, core: &str, siblings: &str) -> Option<Self> {
        let siblings = parse_cpus(siblings)?;
        let package = package.trim().parse().ok()?;
        let core = core.trim().parse().ok()?;
        siblings.contains(&cpu).then_some(Place { cpu, package, core, siblings })
    }
}

impl fmt::Display for Independence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Independence::None => "none",
            Independence::Shared => "shared",
            Independence::Sibling => "sibling",
            Independence::Unknown => "unknown",
            Independence::OwnCore => "own-core",
        })
    }
}

/// CPUs in words: `1,3`, or `none`.
pub(crate) struct Cpus<'a>(pub(crate) &'a [Core]);

impl fmt::Display for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return f.write_str("none") };
        write!(f, "{}", first.0)?;
        rest.iter().try_for_each(|cpu| write!(f, ",{}", cpu.0))
    }
}

/// A list of CPUs as the system writes it, such as `0-2,7`: in order, each once.
fn parse_cpus(text: &str) -> Option<Vec<Core>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend((first..=last).map(Core));
    }
    Some(cpus.into_iter().collect())
}

/// What the system says of its processors; empty if it says nothing.
pub(crate) fn cpuinfo() -> String {
    fs::read_to_string("/proc/cpuinfo").unwrap_or_default()
}

/// Whether a hypervisor runs below. One that hides itself is taken for none.
fn is_virtual(cpuinfo: &str) -> bool {
    fields(cpuinfo).any(|(name, value)| name == "flags" && value.split(' ').any(|flag| flag == "hypervisor"))
}

/// The microcode of a CPU, as `/proc/cpuinfo` has it.
pub(crate) fn microcode(cpuinfo: &str, cpu: Core) -> Option<String> {
    let mut at = None;
    for (name, value) in fields(cpuinfo) {
        match name {
            "processor" => at = value.parse().ok(),
            "microcode" if at == Some(cpu.0) => return Some(value.to_owned()),
            _ => {}
        }
    }
    None
}

fn fields(cpuinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "\
processor\t: 0\nvendor_id\t: GenuineIntel\nmicrocode\t: 0xb000040\nflags\t\t: fpu vme hypervisors sse2\n\n\
processor\t: 1\nmicrocode\t: 0xb000041\nflags\t\t: fpu vme sse2\n";

    fn cores(numbers: &[u16]) -> Vec<Core> {
        numbers.iter().copied().map(Core).collect()
    }

    /// Four physical cores with two threads each, in two packages; siblings are four apart.
    fn machine(is_virtual: bool) -> Topology {
        let place = |cpu: u16| {
            let (package, core) = ((cpu % 4) / 2, cpu % 2);
            let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
            Place::parse(Core(cpu), &format!("{package}\n"), &format!("{core}\n"), &siblings)
        };
        Topology { places: (0..8).filter_map(place).collect(), is_virtual }
    }

    #[test]
    fn lists_of_cpus() {
        for (text, expected) in [
            ("0\n", Some(vec![0])),
            ("0-2,7\n", Some(vec![0, 1, 2, 7])),
            ("7,1-1,1", Some(vec![1, 7])),
            ("", None),
            ("3-1", None),
            ("1,", None),
            ("0-1024", None),
            ("0-4294967295", None),
            ("a", None),
        ] {
            assert_eq!(parse_cpus(text), expected.map(|numbers| cores(&numbers)), "{text:?}");
        }
    }

    #[test]
    fn a_place_that_makes_no_sense_is_unknown() {
        assert!(Place::parse(Core(1), "0\n", "0\n", "0-1\n").is_some());
        for (package, core, siblings) in
            [("", "0", "0-1"), ("-1", "0", "0-1"), ("0", "", "0-1"), ("0", "0", ""), ("0", "0", "2-3")]
        {
            assert_eq!(Place::parse(Core(1), package, core, siblings), None);
        }
    }

    #[test]
    fn what_cpuinfo_says() {
        assert_eq!(microcode(CPUINFO, Core(0)).as_deref(), Some("0xb000040"));
        assert_eq!(microcode(CPUINFO, Core(1)).as_deref(), Some("0xb000041"));
        assert_eq!(microcode(CPUINFO, Core(2)), None);
        assert_eq!(microcode("", Core(0)), None);
        assert!(!is_virtual(CPUINFO));
        assert!(!is_virtual(""));
        assert!(is_virtual(&CPUINFO.replace("hypervisors", "hypervisor")));
    }

    #[test]
    fn the_worst_pair_counts() {
        let check = |workers: &[u16], validators: &[u16], real: &str, hidden: &str| {
            for (is_virtual, expected) in [(false, real), (true, hidden)] {
                let found = machine(is_virtual).independence(&cores(workers), &cores(validators));
                assert_eq!(found.to_string(), expected, "{workers:?} {validators:?}");
            }
        };
        check(&[0, 1], &[2, 3], "own-core", "unknown");
        check(&[0, 1], &[2, 4], "sibling", "unknown");
        check(&[0, 1], &[4, 1], "shared", "shared");
        check(&[0], &[], "none", "none");
        check(&[], &[0], "none", "none");
        // A CPU that nothing is known of.
        check(&[0], &[9], "unknown", "unknown");
    }

    #[test]
    fn siblings_are_believed_on_real_machines_only() {
        assert_eq!(machine(false).siblings(Core(5)), cores(&[1, 5]));
        assert_eq!(machine(true).siblings(Core(5)), cores(&[5]));
        assert_eq!(machine(false).siblings(Core(9)), cores(&[9]));
        assert_eq!((machine(false).package(Core(5)), machine(true).package(Core(5))), (Some(0), None));
    }

    #[test]
    fn validators_get_cores_of_their_own() {
        type Parts<'a> = (&'a [u16], &'a [u16]);
        let check = |topology: &Topology,
                     cpus: &[u16],
                     threads: (usize, usize),
                     expected: Option<Parts<'_>>| {
            let divided = topology.divide(&cores(cpus), threads.0, threads.1);
            let parts =
                |(workers, validators)| Division { workers: cores(workers), validators: cores(validators) };
            assert_eq!(divided, expected.map(parts), "{cpus:?} {threads:?}");
        };
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        for is_virtual in [false, true] {
            let machine = machine(is_virtual);
            check(&machine, &all, (4, 0), None);
            check(&machine, &all, (4, 1), Some((&[0, 1, 2, 4, 5, 6], &[3, 7])));
            check(&machine, &all, (4, 2), Some((&[0, 1, 2, 4, 5, 6], &[3, 7])));
            check(&machine, &all, (4, 3), Some((&[0, 1, 4, 5], &[2, 3, 6, 7])));
            // Whole cores would leave too little to the workers.
            check(&machine, &all, (7, 1), Some((&[0, 1, 2, 3, 4, 5, 6], &[7])));
            check(&machine, &all, (8, 1), None);
            check(&machine, &[0, 1], (1, 1), Some((&[0], &[1])));
            check(&machine, &[0, 4], (1, 1), Some((&[0], &[4])));
            check(&machine, &[0, 4, 1], (2, 1), Some((&[0, 4], &[1])));
            check(&machine, &[0, 1], (2, 1), None);
            check(&machine, &[3], (1, 1), None);
            check(&machine, &[], (1, 1), None);
        }
        check(&Topology::default(), &[0, 1, 2], (1, 1), Some((&[0, 1], &[2])));
    }

    #[test]
    fn cpus_in_words() {
        for (numbers, text) in [(&[][..], "none"), (&[1], "1"), (&[1, 3, 12], "1,3,12")] {
            assert_eq!(Cpus(&cores(numbers)).to_string(), text);
        }
    }

    /// This machine, whatever it is, is read without surprise.
    #[test]
    fn this_machine_can_be_read() {
        let topology = Topology::read(&[Core(0), Core(CPUS_MAX - 1)]);
        assert!(topology.places.len() <= 2);
        assert_eq!(topology.independence(&[Core(0)], &[Core(0)]), Independence::Shared);
    }
}
