function (newDoc, oldDoc, userCtx, secObj) {
  function refuse(reason) {
    throw {forbidden: reason};
  }

  function listed(list, item) {
    return Array.isArray(list) && list.indexOf(item) !== -1;
  }

  function isAdmin() {
    var admins = (secObj && secObj.admins) || {};
    return listed(userCtx.roles, "_admin") || listed(admins.names, userCtx.name) ||
      userCtx.roles.some(function (role) { return listed(admins.roles, role); });
  }

  function sameRoles(one, other) {
    return one.slice().sort().join("\u0000") === (other || []).slice().sort().join("\u0000");
  }

  if (newDoc._deleted === true) {
    if (listed(userCtx.roles, "_admin") || (oldDoc && oldDoc.name === userCtx.name)) {
      return;
    }
    refuse("Only admins may delete other user docs.");
  }
  if (newDoc.type !== "user") { refuse("doc.type must be user"); }
  if (!newDoc.name) { refuse("doc.name is required"); }
  if (!newDoc.roles) { refuse("doc.roles must exist"); }
  if (!Array.isArray(newDoc.roles)) { refuse("doc.roles must be an array"); }
  if (!newDoc.roles.every(function (role) { return typeof role === "string"; })) {
    refuse("doc.roles can only contain strings");
  }
  if (newDoc._id !== "org.couchdb.user:" + newDoc.name) {
    refuse("Doc ID must be of the form org.couchdb.user:name");
  }
  if (oldDoc && oldDoc.name !== newDoc.name) { refuse("Usernames can not be changed."); }
  if (newDoc.password_sha && !newDoc.salt) {
    refuse("Users with password_sha must have a salt.See /_utils/script/couch.js for example code.");
  }
  if (newDoc.password_scheme && !listed(["simple", "pbkdf2", "simple+pbkdf2"], newDoc.password_scheme)) {
    refuse("Password scheme `" + newDoc.password_scheme + "` not supported.");
  }
  if (newDoc.password_scheme === "pbkdf2") {
    if (typeof newDoc.iterations !== "number") { refuse("iterations must be a number."); }
    if (typeof newDoc.derived_key !== "string") { refuse("derived_key must be a string."); }
  }
  if (!isAdmin()) {
    if (!oldDoc) {
      if (newDoc.roles.length > 0) { refuse("Only _admin may set roles"); }
    } else {
      if (userCtx.name !== newDoc.name) { refuse("You may only update your own user document."); }
      if (!sameRoles(newDoc.roles, oldDoc.roles)) { refuse("Only _admin may edit roles"); }
    }
  }
  newDoc.roles.forEach(function (role) {
    if (role.charAt(0) === "_" && role !== "_metrics") {
      refuse("No system roles (starting with underscore) in users db.");
    }
  });
  if (newDoc.name.charAt(0) === "_") { refuse("Username may not start with underscore."); }
  if (newDoc.name.indexOf(":") !== -1) { refuse("Character `:` is not allowed in usernames."); }
}
