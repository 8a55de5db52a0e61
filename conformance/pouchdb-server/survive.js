// PouchDB Server ends at the first failed replication; the suite goes on with the next case.
for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, (error) => console.error('survived:', error && error.message));
}
