// Package embed runs a NATS server with JetStream in the node's own process, alone or
// as a member of a cluster of such servers.
//
// [StartServer] checks the address and the directory, starts the server, and compares
// the streams that it has recovered with those on the disk (server.go). A stream that is
// on the disk and was not recovered is an error: to go on would be to create an empty
// one in its place (I10). log.go hands the server's log to slog. cluster.go has what a
// member of a cluster needs: [ClusterOptions], a check of what another kind of server
// has left in the directory, and how the server stands with the others
// ([Server.Standing], [Server.WaitLeader], [Server.Behind]).
//
// A [Server] lives from StartServer to Close. Clients connect to its URL. When a disk
// was full, a stream cannot be written until Restart, which [Server.Unwritable] reports;
// Restart keeps the port and the directory. One goroutine at a time calls Restart and
// Close. All else may be called at any time: the running server is an atomic pointer, and
// there is no lock.
package embed
