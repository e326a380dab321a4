package embed

// Stalled is how often the server held up a client for another that was slow.
func (s *Server) Stalled() int64 { return s.ns.Load().NumStalledClients() }
