package cold

// OpenBadger is the engine below Open, for the suite that every engine passes.
func OpenBadger(dir string, o Options) (Engine, error) { return openBadger(dir, o) }

// SmallOptions are those of this package's tests.
func SmallOptions() Options { return testOptions() }

// OpenAtMost sets how many files the store has open at once.
func (s *Store) OpenAtMost(files int) { s.files.most = files }
